"""What A and B can be, and the verdict on made-up runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sglang_spec.bench import corpus, mode, subject
from sglang_spec.bench.cells import grid
from sglang_spec.bench.runfile import Recorder, Run
from sglang_spec.canary import spec, verdict
from sglang_spec.canary.command import canary, sentence
from sglang_spec.models import Pair

SETTINGS = {"sides": ["A", "B"], "cells": ["64x1"], "fail_under": 0.97,
            "corpus": {"source": "texts", "texts": 9, "sha256": "00"}}  # fmt: skip
FACTS = {"num_steps": 3, "topk": 1, "num_draft_tokens": 4, "kv_tokens": 1000, "threshold": {},
         "memory": {"weight": 10.0, "graph": {"decode": 0.5, "verify": None}}}  # fmt: skip
EQUAL = {"compared": 8, "equal": 8, "ties": 0, "unexamined": 0, "wrong": []}


def run(
    path: Path,
    speeds: tuple[list[float], list[float]] = ([10.0, 10.1, 9.9], [10.0, 10.1, 9.9]),
    histogram: tuple[int, ...] = (200, 200, 200, 400),
    facts: dict[str, Any] | None = None,
    partial: str | None = None,
    command: str = "",
    **changed: Any,
) -> Run:
    """A with fixed acceptance, and B with `histogram`, `facts` and `changed`."""
    record = Recorder.begin(path / "run.jsonl", {"settings": SETTINGS})
    for name, own in (("A", {}), ("B", facts or {})):
        settings = {"command": f"-m sglang.launch_server {command}"}
        record.add("side", side=name, flags="", group=0, settings=settings,
                   facts={**FACTS, **own})  # fmt: skip
    for name, measured in zip("AB", speeds, strict=True):
        for number, speed in enumerate(measured):
            cycles = (200, 200, 200, 400) if name == "A" else histogram
            entry = {"output_throughput": speed, "histogram": list(cycles), "cycles": sum(cycles),
                     "accept_length": 2.0, "invalid": [], "equality": EQUAL}  # fmt: skip
            record.add("measurement", side=name, cell="64x1", group=0, round=number,
                       **{**entry, **(changed if name == "B" else {})})  # fmt: skip
    record.finish(partial)
    return record.run


def found(told: Run) -> dict[str, verdict.Check]:
    return {check.name: check for check in verdict.checks(told, 0.97)}


def failing(told: Run) -> list[str]:
    return [name for name, check in found(told).items() if check.passed is False]


def test_two_alike_pass_every_check(tmp_path: Path) -> None:
    checks = verdict.checks(run(tmp_path), 0.97)
    assert [check.passed for check in checks] == [True] * 6
    assert sentence(checks) == "B may take the place of A"


def test_room_that_a_flag_gave_both_is_not_compared(tmp_path: Path) -> None:
    fixed = run(tmp_path / "fixed", command="--max-total-tokens 1000")
    assert found(fixed)["KV capacity"].passed is None
    assert sentence(verdict.checks(fixed, 0.97)).endswith("not checked: KV capacity")
    less = run(tmp_path / "less", command="--max-total-tokens 1000", facts={"kv_tokens": 900})
    assert found(less)["KV capacity"].passed is False


def test_servers_that_share_a_gpu_get_room_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sglang_spec.host.device", lambda: "cuda")

    def command(together: str) -> str:
        words = ["", "", "--pair", "tiny", "--dry-run", "--together", together]
        done = CliRunner().invoke(canary, [*words, "--output", str(tmp_path)])
        assert done.exit_code == 0, done.output
        return done.output

    assert "--max-total-tokens" in command("2") and "--max-total-tokens" not in command("1")


@pytest.mark.parametrize(
    ("changed", "check", "says"),
    [
        ({"invalid": ["accept length 1.00"]}, "measurement", "B in 64x1: accept length 1.00"),
        ({"partial": "interrupted"}, "measurement", "partial: interrupted"),
        ({"speeds": ([10.0] * 3, [])}, "measurement", "64x1 was not measured on both"),
        ({"histogram": (260, 180, 180, 380)}, "acceptance", "position 1: 0.800 to 0.740"),
        ({"histogram": (1000,)}, "acceptance", "position 3: 0.400 to 0.000"),
        ({"speeds": ([10.0, 10.1, 9.9], [9.0, 9.1, 8.9])}, "speed", "at worst 0.900 (64x1)"),
        ({"facts": {"kv_tokens": 900}}, "KV capacity", "1000 and 900 tokens, 0.900"),
        ({"facts": {"memory": {"weight": 12.0}}}, "memory", "10.50 GB and 12.00 GB"),
    ],
)
def test_each_thing_that_got_worse_is_named(
    changed: dict[str, Any], check: str, says: str, tmp_path: Path
) -> None:
    told = run(tmp_path, **changed)
    assert failing(told) == [check] and says in found(told)[check].detail
    assert sentence(verdict.checks(told, 0.97)).startswith(
        "B may not take the place of A: " + check
    )


def test_other_tokens_are_a_finding_of_tokens_alone(tmp_path: Path) -> None:
    wrong = {**EQUAL, "equal": 7, "wrong": [{"prompt": 3}]}
    told = run(tmp_path, equality=wrong, invalid=["unequal output: request 3, position 5"])
    assert failing(told) == ["tokens"]
    assert "request 3, position 5" in found(told)["tokens"].detail
    assert found(told)["speed"].passed is None


def test_ties_are_no_finding(tmp_path: Path) -> None:
    told = run(tmp_path, equality={**EQUAL, "equal": 6, "ties": 2})
    assert failing(told) == [] and "6 up to a tie" in found(told)["tokens"].detail


def test_noise_of_few_cycles_is_no_drop_of_acceptance(tmp_path: Path) -> None:
    few = run(tmp_path, histogram=(6, 4, 4, 9))  # 0.74 of 69 cycles where A has 0.80 of 3000
    assert found(few)["acceptance"].passed is True


def test_other_settings_and_no_speculation_are_not_compared_by_acceptance(tmp_path: Path) -> None:
    other = run(tmp_path / "a", histogram=(900, 100), facts={"num_steps": 1})
    assert found(other)["acceptance"].passed is None
    off = run(tmp_path / "b", histogram=())
    checks = verdict.checks(off, 0.97)
    assert found(off)["acceptance"].passed is None and verdict.passed(checks)
    assert sentence(checks).endswith("not checked: acceptance")


def test_what_a_side_can_be(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.touch()
    tested = subject.Subject("own", Pair(Path("t"), Path("d")), corpus.of_tiny())
    common = subject.settings(tested, grid([64], [1], [], 1, 8), 0, (), "auto")
    here = spec.side("A", "", common)
    assert here.launch == mode.launch("static", common)
    assert spec.side("A", "http://x:1/", common).url == "http://x:1"
    off = spec.side("A", "none --tp-size 2", common)
    assert off.launch and off.launch.speculation is None
    assert off.launch.arguments[-2:] == ("--tp-size", "2")
    other = spec.side("B", f"{python} --attention-backend triton", common)
    assert other.launch and other.launch.python == ("env", "-u", "PYTHONPATH", str(python))
    for text, says in (("fast", "'fast' is no flag"), ("/no/python", "no interpreter /no/python")):
        with pytest.raises(spec.SpecError, match=says):
            spec.side("B", text, common)


def test_the_command_takes_flags_as_texts_and_refuses_others(tmp_path: Path) -> None:
    common = ("--pair", "tiny", "--dry-run", "--json", "--together", "2")
    done = CliRunner().invoke(canary, ["", "--speculative-num-steps 5", *common])
    told = json.loads(done.stdout)
    assert told["groups"] == [["A", "B"]]
    assert told["sides"]["B"]["command"].endswith("--speculative-num-steps 5")
    assert CliRunner().invoke(canary, ["", "fast", *common]).exit_code == 2
    done = CliRunner().invoke(canary, ["", "http://127.0.0.1:1", "--dry-run"])
    assert done.exit_code == 2 and "say what the servers serve" in done.output
    assert CliRunner().invoke(canary, [""]).exit_code == 2


@pytest.mark.parametrize("word", ["--fail-undr 1.2", "--fail-undr=1.2", "--concurency 1"])
@pytest.mark.parametrize("sides", [["", ""], ["http://127.0.0.1:1", "http://127.0.0.1:2"]])
def test_an_option_that_is_misspelt_is_named(word: str, sides: list[str]) -> None:
    done = CliRunner().invoke(canary, [*sides, "--pair", "tiny", "--dry-run", *word.split()])
    assert done.exit_code == 2 and "Did you mean '--" in done.output


def test_arguments_need_a_server_that_is_started() -> None:
    common = ("--pair", "tiny", "--dry-run")
    both = ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    for words in (["--log-level", "warning"], ["--", "--log-level", "warning"]):
        done = CliRunner().invoke(canary, [*both, *common, *words])
        assert done.exit_code == 2 and "--log-level warning: arguments go to" in done.output
        one = CliRunner().invoke(canary, [both[0], "", *common, *words])
        assert one.exit_code == 0 and "--log-level warning" in one.output
    done = CliRunner().invoke(canary, ["http://h:99999", "", *common])
    assert done.exit_code == 2 and "give http://HOST:PORT" in done.output
    assert CliRunner().invoke(canary, ["", "", *common, "--num-steps", "0"]).exit_code == 2
