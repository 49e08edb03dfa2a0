"""What follows from a run's raw lines: figures, summary, pictures, a comparison of two."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sglang_spec.bench import command, compare, curves, output, predict, statistics
from sglang_spec.bench.runfile import Recorder, Run
from sglang_spec.bench.table import table

PHASES = ("decode", "decode_rest", "draft", "verify", "draft_extend", "cycle_rest")
# A plain step takes 10 + 1 ms, a cycle 4 + 12 + 3 + 1 ms, whatever the batch.
MEASURED = {
    "milliseconds": [
        {"context": 64, "requests": [1, 8], "gain": [1.0, 1.0]}
        | dict(zip(PHASES, ([v, v] for v in (10.0, 1.0, 4.0, 12.0, 3.0, 1.0)), strict=True))
    ]
}
HOST = {"gpu": None, "driver": None, "cpu": "a CPU", "cores": 2, "python": "3.11", "packages": {}}
Make = Callable[..., Run]


def entry(speed: float, **changed: Any) -> dict[str, Any]:
    return {
        "output_throughput": speed, "mean_ttft_ms": 5.0, "p99_ttft_ms": 9.0, "mean_itl_ms": 2.0,
        "p99_itl_ms": 3.0, "cycles": 10, "cycles_per_s": 4.0, "accept_length": 2.5,
        "histogram": [2, 3, 3, 2], "invalid": [],
        "equality": {"compared": 4, "equal": 3, "ties": 1, "unexamined": 0, "wrong": []},
        **changed,
    }  # fmt: skip


NONE: dict[str, Any] = {"cycles": 0, "accept_length": None, "histogram": []}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A run of sides none and static in one cell, speeds by round."""

    def made(
        none: list[float], static: list[float], name: str = "a", partial: str | None = None,
        cell: str = "64x8", **changed: Any,
    ) -> Run:  # fmt: skip
        settings = {"sides": ["none", "static"], "cells": [cell],
                    "corpus": {"source": "texts", "texts": 9, "sha256": "00"}}  # fmt: skip
        header = {
            "settings": settings, "host": HOST, "argv": ["bench"],
            "pin": {"version": "0", "spec": 1, "patch_set": "feed", "changed": []},
            "checkpoints": {"model": {"name": "m", "sha256": "11"}},
        }  # fmt: skip
        record = Recorder.begin(tmp_path / name / "run.jsonl", header)
        for side in settings["sides"]:
            facts = {"num_draft_tokens": 4, "threshold": MEASURED if side == "static" else {},
                     "kv_tokens": 100, "provenance": {"version": "0"}}  # fmt: skip
            record.add("side", side=side, flags="", group=0, settings={"command": side},
                       facts=facts)  # fmt: skip
        for number, speed in enumerate(none):
            record.add("measurement", side="none", cell=cell, group=0, round=number,
                       **entry(speed, **NONE))  # fmt: skip
        for number, speed in enumerate(static):
            record.add("measurement", side="static", cell=cell, group=0, round=number,
                       **entry(speed, **changed))  # fmt: skip
        record.finish(partial)
        return record.run

    return made


def test_the_speedup_is_paired_by_round_and_has_both_bounds(make: Make) -> None:
    found = table(make([10.0, 20.0, 40.0], [15.0, 30.6, 60.0]))["64x8"]
    assert found["none"]["speedup"] is None
    speedup = found["static"]["speedup"]
    assert speedup["ratio"] == pytest.approx(1.51, abs=0.01)
    assert 1.45 < speedup["low"] < 1.5 < 1.53 < speedup["high"] < 1.57
    assert found["static"]["accept_length"] == 2.5
    assert found["static"]["position_acceptance"] == [0.8, 0.5, 0.2]
    assert found["static"]["equality"] == {"compared": 12, "equal": 9, "ties": 3, "wrong": 0}


def test_one_invalid_round_makes_no_ratio(make: Make) -> None:
    found = table(make([10.0, 10.0], [900.0, 15.0], invalid=["accept length 1.00"]))["64x8"]
    assert not found["static"]["valid"] and found["static"]["speedup"] is None
    assert found["static"]["invalid"] == ["accept length 1.00"]


def test_a_prediction_comes_from_the_measured_phases(make: Make) -> None:
    run = make([10.0], [15.0])
    predicted = table(run)["64x8"]["static"]["predicted"]
    assert predicted["speedup"] == pytest.approx(2.5 * 11 / 20)
    assert predicted["phase_shares"]["verify"] == 0.6 and not predicted["extrapolated"]
    costs = predict.cost_table(run)
    assert predict.speedup(costs, "64@2.5", 2.5, 4) is None
    assert predict.speedup(costs, "64x8", 2.5, 6) is None
    assert predict.speedup(costs, "64x8", None, 4) is None
    assert table(run)["64x8"]["none"]["predicted"] is None


def test_every_file_has_its_provenance_and_says_that_it_is_partial(make: Make) -> None:
    run = make([10.0, 11.0], [15.0, 16.0], partial="interrupted")
    folder = run.path.parent
    output.write(run, folder)
    for name in ("run.jsonl", "figures.json", "summary.md", "curves.png", "curves.svg"):
        content = (folder / name).read_bytes()
        assert b"feed" in content and b"interrupted" in content, name
    summary = (folder / "summary.md").read_text()
    assert "| `static` | 15.5 ± " in summary and "3 of 4" not in summary
    assert "6 of 8, 2 ties" in summary
    assert "a cycle 20.00 ms: draft 20%, verify 60%, draft-extend 15%, cycle-rest 5%" in summary
    modes = output.by_mode(output.figures(run))
    assert modes["modes"]["static"]["8"]["64"]["accept_length"] == 2.5
    assert modes["provenance"]["pin"]["patch_set"] == "feed"


def test_a_kill_while_a_picture_is_drawn_leaves_the_one_before(
    make: Make,
) -> None:
    run = make([10.0, 11.0], [15.0, 16.0])
    folder = run.path.parent
    output.write(run, folder)
    before = {suffix: (folder / f"curves.{suffix}").read_bytes() for suffix in ("png", "svg")}

    class Cut:
        def savefig(self, target: Any, **_: Any) -> None:
            Path(target).write_bytes(b"half a pict")
            raise KeyboardInterrupt

    for suffix, content in before.items():
        with pytest.raises(KeyboardInterrupt):
            curves.save(Cut(), folder / f"curves.{suffix}", {})
        assert (folder / f"curves.{suffix}").read_bytes() == content


def test_invalid_figures_are_called_so_everywhere(make: Make) -> None:
    run = make([10.0, 11.0], [15.0, 16.0], invalid=["unequal output: request 0"])
    output.write(run, run.path.parent)
    summary = (run.path.parent / "summary.md").read_text()
    assert "- `static` is invalid: unequal output: request 0" in summary
    done = CliRunner().invoke(command.bench, ["report", str(run.path), "--json"])
    assert done.exit_code == 1 and not json.loads(done.output)["cells"]["64x8"]["static"]["valid"]


def test_a_record_is_by_mode_concurrency_and_context(make: Make, tmp_path: Path) -> None:
    run = make([10.0, 11.0], [15.0, 16.0])
    record = tmp_path / "concurrency.json"
    done = CliRunner().invoke(command.bench, ["report", str(run.path), "--record", str(record)])
    assert done.exit_code == 0, done.output
    assert set(json.loads(record.read_text())["modes"]["none"]["8"]["64"]) >= {"tok_s", "valid"}


def ask(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(command.bench, ["compare", *arguments, "--json"])
    return done.exit_code, json.loads(done.stdout)


def test_a_slower_run_is_a_finding_below_the_floor_only(make: Make) -> None:
    before = make([10.0, 10.1, 9.9], [20.0, 20.1, 19.9], "a")
    after = make([10.0, 10.1, 9.9], [18.0, 18.1, 17.9], "b")
    files = str(before.path), str(after.path)
    code, told = ask(*files, "--fail-under", "0.95")
    failing = [pair["side"] for pair in told["pairs"] if pair["fails"]]
    assert (code, failing, told["differences"]) == (1, ["static"], [])
    assert ask(*files, "--fail-under", "0.85")[0] == 0
    assert ask(*files, "--fail-under", "0.95", "--side", "none")[0] == 0


def test_a_spread_that_reaches_equality_is_no_finding(make: Make) -> None:
    before = make([10.0], [20.0, 25.0, 15.0], "a")
    after = make([10.0], [18.0, 23.0, 13.0], "b")
    assert ask(str(before.path), str(after.path), "--fail-under", "0.95")[0] == 0


def test_speedups_of_two_runs_agree_or_differ(make: Make) -> None:
    """The host of B is half as fast throughout, which is no other speedup."""
    a = make([10.0, 10.2, 9.9], [20.0, 20.6, 19.6], "a")
    same = make([5.0, 5.1, 4.9], [10.1, 10.1, 9.9], "b")
    slower = make([5.0, 5.1, 4.9], [8.0, 8.16, 7.85], "c")
    told = ask(str(a.path), str(same.path))[1]
    assert told["speedups_agree"] is True
    none, static = told["pairs"]
    assert none["speedups"] is None and static["speedups"] == pytest.approx([2.0, 2.0], abs=0.03)
    assert ask(str(a.path), str(slower.path))[1]["speedups_agree"] is False
    words = CliRunner().invoke(command.bench, ["compare", str(a.path), str(slower.path)]).output
    assert "0 of 1 speedups agree" in words and "differ" in words and "1.60" in words


def test_one_round_tells_no_spread_that_speedups_could_agree_in(make: Make) -> None:
    a, b = make([10.0], [20.0], "a"), make([10.0], [12.0], "b")
    assert ask(str(a.path), str(b.path))[1]["speedups_agree"] is None
    broken = make([10.0, 11.0], [20.0, 22.0], "c", invalid=["accept length 1.00"])
    assert ask(str(a.path), str(broken.path))[1]["speedups_agree"] is None


def test_speedups_that_are_alike_are_called_so_in_95_of_100_comparisons() -> None:
    """Of four pairs with three rounds each; a fall of 10 % with a spread of 1 % is seen."""
    dice = random.Random(5)

    def drawn(mean: float) -> list[float]:
        return [dice.gauss(mean, 0.01) for _ in range(3)]

    def told(fall: float) -> bool:
        pairs = [
            compare.Pair("s", str(n), None, (None, None), chance=statistics.chance(drawn(0.5),
                         drawn(0.5 - (fall if n == 0 else 0)))) for n in range(4)
        ]  # fmt: skip
        return not compare.agree(pairs)[1]

    assert sum(told(0.0) for _ in range(400)) >= 370
    assert sum(told(0.1) for _ in range(400)) <= 200


def test_what_cannot_be_compared_is_shown_and_nothing_at_all_is_a_finding(make: Make) -> None:
    before = make([10.0], [20.0], "a")
    broken = make([10.0], [90.0], "b", invalid=["accept length 1.00"])
    why = {pair.side: pair.why for pair in compare.compare(before, broken)}
    assert why == {"none": "", "static": "invalid in B: accept length 1.00"}
    elsewhere = make([10.0], [20.0], "c", cell="64x4")
    code, told = ask(str(before.path), str(elsewhere.path))
    assert (code, told["passed"]) == (1, False)
    assert {pair["why"] for pair in told["pairs"]} == {"not measured in B", "not measured in A"}


def test_a_file_that_is_no_run_is_wrong_usage(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("{}\n")
    done = CliRunner().invoke(command.bench, ["compare", str(path), str(path)])
    assert done.exit_code == 2 and "x.jsonl" in done.output


def test_a_record_says_nothing_of_folders() -> None:
    """It is committed and shown; names stay, a URL and a share of tokens too."""
    command = "--model-path /home/me/models/smollm2 --url http://host:1/v1/a --set 1/2 /x"
    made = {
        "cells": {},
        "partial": None,
        "provenance": {"command": command, "kept": ["/tmp/r/run"]},
    }
    told = output.by_mode(made)["provenance"]
    assert told["command"] == "--model-path …/smollm2 --url http://host:1/v1/a --set 1/2 /x"
    assert told["kept"] == ["…/run"]
