"""Logs, costs from a run, the simulation against plain arithmetic, and the advice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sglang_spec.advise import costs as measured
from sglang_spec.advise import log as traffic
from sglang_spec.advise import policy
from sglang_spec.advise.command import advise, sentences
from sglang_spec.advise.costs import Costs
from sglang_spec.advise.log import Request
from sglang_spec.advise.simulate import simulate
from sglang_spec.bench import predict
from sglang_spec.bench.runfile import Recorder

# Plain steps take 10 ms whatever the batch; cycles 12 ms and 1 ms more for each request.
ROWS = [1, 2, 4, 8, 16, 32]
MEASURED = {
    "accept_length": 2.0,
    "milliseconds": [
        {"context": 64, "requests": ROWS, "gain": [1.0] * 6, "decode": [10.0] * 6,
         "decode_rest": [0.0] * 6, "draft": [2.0] * 6, "verify": [9.0 + n for n in ROWS],
         "draft_extend": [1.0] * 6, "cycle_rest": [0.0] * 6}
    ],
}  # fmt: skip


def costs(**changed: Any) -> Costs:
    table = predict.table_of(MEASURED, 4)
    return replace(Costs(table, 2.05, (None, None), 0.0, 64, "--flags", {}), **changed)


def many(count: int, gap: float, prompt: int = 64, output: int = 50) -> list[Request]:
    return [Request(gap * number, prompt, output) for number in range(count)]


def test_one_request_takes_what_arithmetic_says() -> None:
    plain = simulate(many(1, 0, output=51), costs(), 0, None)
    assert plain.mean_latency == pytest.approx(50 * 0.010) and plain.speculating == 0
    fast = simulate(many(1, 0, output=51), costs(), None, None)
    assert fast.mean_latency == pytest.approx(50 * 0.013 / 2.05) and fast.speculating == 1
    prefilled = simulate(many(1, 0, output=51), costs(prefill=0.001), 0, None)
    assert prefilled.mean_latency == pytest.approx(50 * 0.010 + 0.064)
    assert prefilled.mean_token == pytest.approx(0.010)


def test_a_batch_advances_together_and_the_threshold_looks_at_its_rows() -> None:
    eight = many(8, 0, output=101)
    assert simulate(eight, costs(), 0, None).mean_latency == pytest.approx(1.0)
    assert simulate(eight, costs(), None, None).mean_latency == pytest.approx(100 * 0.020 / 2.05)
    assert simulate(eight, costs(), 8, None).speculating == 0
    assert simulate(eight, costs(), 9, None).speculating == 1
    assert simulate(eight, costs(), 9, None).peak_rows == 8


def test_the_jumps_agree_with_single_steps() -> None:
    """Against a loop that takes one plain step after the other."""
    log = [Request(0.037 * n, 64, 20 + 7 * (n % 5)) for n in range(40)]
    now, running, ended, at = 0.0, [], [], 0
    while at < len(log) or running:
        while at < len(log) and log[at].arrival <= now:
            running.append([log[at], log[at].output_tokens - 1])
            at += 1
        if not running:
            now = log[at].arrival
            continue
        now += 0.010
        for one in running:
            one[1] -= 1
        ended += [now - one[0].arrival for one in running if one[1] <= 0]
        running = [one for one in running if one[1] > 0]
    found = simulate(log, costs(), 0, None)
    # An arrival waits for the step that runs, half of one on average.
    assert found.mean_latency == pytest.approx(sum(ended) / len(ended), rel=0.05)


def test_requests_wait_for_room_and_those_that_never_fit_are_refused() -> None:
    four = many(4, 0, prompt=100, output=100)
    free = simulate(four, costs(), 0, None)
    tight = simulate(four, costs(), 0, 400)
    assert (free.waited, free.peak_rows, tight.peak_rows) == (0, 4, 2)
    assert tight.mean_latency == pytest.approx(1.5 * free.mean_latency, rel=0.01)
    assert simulate(four, costs(), 0, 150).refused == 4
    assert simulate(four, costs(most_requests=1), 0, None).peak_rows == 1


def test_light_traffic_gets_speculation_without_a_threshold() -> None:
    found = policy.advise(many(20, 2.0), costs())
    assert (found.pays, found.best, found.flags) == (True, policy.ALWAYS, "--flags")
    assert found.gain == pytest.approx(20.5 / 13, rel=0.02)
    assert found.crossing == 9  # 12 + 9 ms for 2.05 tokens, against 20.5


def test_costs_of_a_busy_host_are_called_so() -> None:
    """One request's cycle was disturbed: it pays at two, four and eight, and not at one."""
    line = dict(MEASURED["milliseconds"][0], verify=[60.0, *(9.0 + n for n in ROWS[1:])])
    table = predict.table_of(MEASURED | {"milliseconds": [line]}, 4)
    found = policy.advise(many(20, 0.3), costs(table=table))
    assert (found.crossing, found.uneven) == (1, True)
    assert "measure again" in sentences(found)[0]
    even = policy.advise(many(20, 0.3), costs())
    assert not even.uneven and "stops to pay at 9" in sentences(even)[0]


def test_traffic_of_both_kinds_gets_a_threshold_at_the_crossing() -> None:
    crowd = [Request(100.0, 64, 400) for _ in range(32)]
    found = policy.advise([*many(60, 1.0, output=80), *crowd], costs())
    assert found.pays and found.threshold is not None and found.threshold == 9
    assert found.flags == f"--flags {policy.THRESHOLD} {found.threshold}"
    always = found.outcomes[policy.ALWAYS].mean_latency
    assert found.outcomes[found.best].mean_latency < always


def test_crowds_only_do_not_pay_and_a_smaller_cache_can_decide() -> None:
    found = policy.advise(many(320, 0.0, output=100), costs(most_requests=32))
    assert not found.pays and found.flags == "" and found.best == policy.NONE
    assert sentences(found)[-1] == "flags: none"
    log = many(6, 0.0, prompt=1000, output=100)
    assert policy.advise(log, costs(kv_tokens=(8000, 8000))).pays
    small = policy.advise(log, costs(kv_tokens=(8000, 2500)))
    assert not small.pays and small.kv_cost == pytest.approx(0.6875)
    refused = policy.advise(log, costs(kv_tokens=(8000, 900)))
    fixed = policy.advise(log, costs(kv_tokens=(8000, 8000), kv_fixed=True))
    assert fixed.pays and fixed.kv_cost is None
    assert not refused.pays and refused.outcomes[policy.ALWAYS].refused == 6


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("own.jsonl", '{"arrival": 5.0, "prompt_tokens": 9, "output_tokens": 3}\n'
                      '{"arrival": 4.5, "prompt_tokens": 8, "output_tokens": 2}\n'),
        ("iso.jsonl", '{"arrival": "2026-01-01T00:00:00.5", "prompt_tokens": 9, '
                      '"output_tokens": 3}\n\n{"arrival": "2026-01-01T00:00:00", '
                      '"prompt_tokens": 8, "output_tokens": 2}\n'),
        ("mooncake.jsonl", '{"timestamp": 500, "input_length": 9, "output_length": 3}\n'
                           '{"timestamp": 0, "input_length": 8, "output_length": 2}\n'),
        ("azure.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                      "2023-11-16 18:15:46.5,9,3\n2023-11-16 18:15:46.0,8,2\n"),
    ],
)  # fmt: skip
def test_logs_of_four_kinds_say_the_same(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert traffic.read(tmp_path / name) == [Request(0.0, 8, 2), Request(0.5, 9, 3)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"arrival": 1}\n', r":1: no request"),
        ('{"arrival": "soon", "prompt_tokens": 9, "output_tokens": 3}\n', r":1: .*soon"),
        (
            '{"arrival": 1, "prompt_tokens": 9, "output_tokens": 0}\n',
            "output_tokens = 0: write a whole number of tokens, at least 1",
        ),
        ("[1]\n", r":1: no request"),
        ("nothing\n", "Expecting value"),
        ("", "no requests"),
    ],
)
def test_a_log_that_is_none_is_named_with_its_line(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(traffic.LogError, match=says):
        traffic.read(tmp_path / "x.jsonl")


def run(path: Path, threshold: dict[str, Any]) -> Path:
    """A run file with the sides none and auto."""
    header = {"settings": {"sides": ["none", "auto"], "cells": ["50x1"]}, "pin": {"spec": 1},
              "host": {}, "checkpoints": {}}  # fmt: skip
    record = Recorder.begin(path, header)
    common = {"num_steps": 3, "topk": 1, "num_draft_tokens": 4, "most_requests": 16}
    for side, own in (
        ("none", {"algorithm": None, "threshold": {}, "kv_tokens": 1000}),
        ("auto", {"algorithm": "EAGLE3", "threshold": threshold, "kv_tokens": 900,
                  "provenance": {"draft": "/models/a draft"}}),
    ):  # fmt: skip
        record.add("side", side=side, flags="", group=0, facts={**common, **own}, settings={})
    for side, cycles in (("none", 0), ("auto", 10)):
        record.add("measurement", side=side, cell="50x1", group=0, round=0, cycles=cycles,
                   accept_length=2.5, invalid=[], mean_ttft_ms=100.0)  # fmt: skip
    record.finish(None)
    return path


def test_costs_come_from_a_run_with_auto(tmp_path: Path) -> None:
    found = measured.of_run(run(tmp_path / "run.jsonl", MEASURED))
    assert (found.accept_length, found.kv_tokens, found.most_requests) == (2.5, (1000, 900), 16)
    assert found.prefill == pytest.approx(0.002)
    assert found.flags == (
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path '/models/a draft' "
        "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
    )
    assert found.gain(1, 64) == pytest.approx(2.5 * 10 / 13)
    with pytest.raises(measured.CostsError, match="none,static,auto"):
        measured.of_run(run(tmp_path / "without.jsonl", {}))


def test_the_command_prints_flags_draws_and_says_what_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    entry = {"prompt_tokens": 64, "output_tokens": 50}
    log.write_text("".join(json.dumps({"arrival": 2 * n, **entry}) + "\n" for n in range(9)))
    file = str(run(tmp_path / "run.jsonl", MEASURED))
    picture = tmp_path / "advice.svg"
    done = CliRunner().invoke(advise, [str(log), "--costs", file, "--picture", str(picture)])
    assert done.exit_code == 0 and "flags: --speculative-algorithm EAGLE3" in done.stdout
    assert "it takes 10.0% of the KV capacity" in done.stdout
    assert "run.jsonl" in picture.read_text()
    told = json.loads(CliRunner().invoke(advise, [str(log), "--costs", file, "--json"]).stdout)
    assert told["pays"] and told["kv_tokens"] == [1000, 900]
    less = CliRunner().invoke(advise, [str(log), "--costs", file, "--accept-length", "1.0"])
    assert "flags: none" in less.stdout
    assert CliRunner().invoke(advise, [str(log)]).exit_code == 2
    assert CliRunner().invoke(advise, [file, "--costs", file]).exit_code == 2


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('"arrival": NaN, "prompt_tokens": 9, "output_tokens": 9', "arrival = nan: write seconds"),
        ('"arrival": -1e400, "prompt_tokens": 9, "output_tokens": 9', "arrival = -inf: write"),
        ('"arrival": "nan", "prompt_tokens": 9, "output_tokens": 9', "arrival = 'nan': write"),
        ('"arrival": 1, "prompt_tokens": 1e400, "output_tokens": 9', "prompt_tokens = inf: write"),
        ('"arrival": 1, "prompt_tokens": 9, "output_tokens": NaN', "output_tokens = nan: write a"),
    ],
)
def test_numbers_that_are_none_are_named(line: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    good = '{"arrival": 0, "prompt_tokens": 9, "output_tokens": 9}\n'
    path.write_text(good + "{" + line + "}\n")
    with pytest.raises(traffic.LogError) as error:
        traffic.read(path)
    assert f"{path}:2: " in str(error.value) and says in str(error.value)


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_a_log_that_is_no_text_is_named(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"log.{suffix}"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(traffic.LogError, match="write the log as UTF-8"):
        traffic.read(path)
    done = CliRunner().invoke(advise, [str(path), "--costs", str(path)])
    assert done.exit_code == 2 and "UTF-8" in done.output


@pytest.mark.parametrize(
    ("name", "says"), [("run.jsonl/advice.svg", "run.jsonl/advice.svg: "), ("advice.foo", "PNG")]
)
def test_a_picture_that_cannot_be_written_is_named(name: str, says: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"arrival": 0, "prompt_tokens": 64, "output_tokens": 50}\n')
    file = str(run(tmp_path / "run.jsonl", MEASURED))
    done = CliRunner().invoke(
        advise, [str(log), "--costs", file, "--picture", str(tmp_path / name)]
    )
    assert done.exit_code == 2 and says in " ".join(done.output.split())
