"""Points and what is left out, the choice for each band, the frontier, the command's dry run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sglang_spec.sweep import choose, pareto, point
from sglang_spec.sweep.command import sweep
from sglang_spec.sweep.point import Point


def test_a_grid_of_chains_and_trees() -> None:
    chains = point.grid([1, 3], [1], [], [], [])
    assert [one.name for one in chains] == ["1,1,2", "3,1,4"]
    trees = point.grid([3], [1, 4], [8, 16], ["none", "32", "auto"], [])
    assert [one.name for one in trees] == [
        "3,1,4", "3,1,4 off at 32", "3,1,4 off at auto",
        "3,4,8", "3,4,16", "3,4,8 off at 32", "3,4,16 off at 32",
        "3,4,8 off at auto", "3,4,16 off at auto",
    ]  # fmt: skip
    assert trees[1].arguments() == ("--speculative-disable-batch-threshold", "32")
    assert point.grid([2], [1], [], [], ["auto"])[0].arguments()[0] == "--speculative-comm-plan"


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (Point(3, 1, 4), None),
        (Point(3, 1, 8), "3 steps make 4 draft tokens, not 8"),
        (Point(5, 4, 4), "no room for 5 steps"),
        (Point(1, 4, 6), "has 5 tokens at most"),
        (Point(2, 4, 21), None),
        (Point(2, 4, 22), "has 21 tokens at most"),
        (Point(0, 1, 1), "is the baseline"),
        (Point(3, 1, 4, threshold="16"), "no load of the sweep reaches the threshold of 16"),
        (Point(3, 1, 4, threshold="8"), None),
        (Point(3, 1, 4, threshold="auto"), None),
        (Point(3, 1, 4, plan="auto"), "one rank"),
    ],
)
def test_a_point_that_is_of_no_use_says_why(one: Point, says: str | None) -> None:
    why = one.why_not(most_requests=8, ranks=1)
    assert why is None if says is None else says in str(why)


def test_a_communication_plan_is_tried_with_ranks() -> None:
    assert Point(3, 1, 4, plan="auto").why_not(8, ranks=2) is None


def test_tuples_of_specforge() -> None:
    points, batches = point.of_tuples("1,0,0,0 1,3,1,4 8,3,1,4 8,5,8,32")
    assert [one.name for one in points] == ["3,1,4", "5,8,32"] and batches == [1, 8]
    with pytest.raises(point.PointError, match="'3,1,4' is not batch"):
        point.of_tuples("3,1,4")


def side(speedup: float | None, low: float | None, tok_s: float, valid: bool = True) -> Any:
    ratio = None if speedup is None else {"ratio": speedup, "low": low, "high": 9.0}
    return {"valid": valid, "speedup": ratio, "tok_s": {"mean": tok_s}}


CELLS = {
    "64x1": {"none": side(None, None, 10), "a": side(2.0, 1.8, 20), "b": side(1.5, 1.4, 15)},
    "64x4": {"none": side(None, None, 40), "a": side(1.5, 1.3, 60), "b": side(1.6, 0.9, 64)},
    "64x16": {"none": side(None, None, 160), "a": side(9.0, 8.0, 900, valid=False)},
    "64x32": {"none": side(None, None, 300), "a": side(0.7, 0.6, 210)},
    "64@2": {"none": side(None, None, 50), "a": side(3.0, 2.9, 150)},
}
FLAGS = {"none": "", "a": "--a", "b": "--b"}


def test_bands_join_neighbours_and_need_more_than_luck() -> None:
    found = choose.bands(CELLS, FLAGS, "none")
    assert [(band.low, band.high, band.side) for band in found] == [(1, 4, "a"), (16, 32, "none")]
    assert found[0].speedups == (2.0, 1.5) and found[1].flags == ""
    assert found[0].undecided == ("b",), "faster on average at 4, and maybe no faster than none"


def test_one_launch_for_all_bands_has_a_threshold_where_speculation_loses() -> None:
    found = choose.bands(CELLS, FLAGS, "none")
    threshold = "--speculative-disable-batch-threshold 16"
    assert choose.launches(found, "none") == {64: f"--a {threshold}"}
    few = choose.bands({"64x1": CELLS["64x1"]}, FLAGS, "none")
    assert choose.launches(few, "none") == {64: "--a"}
    many = choose.bands({"64x32": CELLS["64x32"]}, FLAGS, "none")
    assert choose.launches(many, "none") == {64: ""}


def test_the_frontier_has_what_nothing_beats_in_both(tmp_path: Path) -> None:
    found = pareto.places(CELLS)[64]
    assert {place.side for place in found if place.concurrency == 16} == {"none"}
    edge = pareto.frontier(found)
    assert [(one.side, one.concurrency) for one in edge] == [("a", 1), ("b", 4), ("none", 16),
                                                             ("none", 32)]  # fmt: skip
    made = {"cells": CELLS, "partial": "interrupted", "provenance": {"pin": "feed"}}
    assert pareto.draw(made, tmp_path / "pareto.svg")
    assert "feed" in (tmp_path / "pareto.svg").read_text()
    assert not pareto.draw({**made, "cells": {}}, tmp_path / "none.png")


def dry(*arguments: str) -> Any:
    return CliRunner().invoke(sweep, ["--pair", "tiny", "--dry-run", "--json", *arguments])


def test_a_dry_run_shows_points_reasons_and_cost(tmp_path: Path) -> None:
    done = dry("--topk", "1,4", "--draft-tokens", "8", "--together", "2", "--output", str(tmp_path))
    told = json.loads(done.stdout)
    assert told["points"] == ["none", "1,1,2", "3,1,4", "3,4,8", "5,1,6", "5,4,8"]
    assert list(told["pruned"]) == ["1,4,8"]
    assert told["cost"]["servers_started"] == 6 and told["cost"]["seconds"] is None
    assert told["groups"][1] == ["none", "3,1,4"] and not list(tmp_path.iterdir())


def test_batches_of_tuples_are_the_concurrencies() -> None:
    told = json.loads(dry("--config-list", "2,3,1,4 8,5,1,6").stdout)
    assert told["cells"] == ["256x2", "256x8"]


def test_nothing_left_is_wrong_usage_with_the_reasons() -> None:
    done = dry("--config-list", "2,3,1,9")
    assert done.exit_code == 2 and "not 9" in " ".join(done.output.replace("│", " ").split())
    assert dry("--config-list", "3,1").exit_code == 2


@pytest.mark.parametrize("text", ["foo", "0", "auto,-1", "8,2.5"])
def test_a_threshold_that_is_none_is_wrong_usage(text: str) -> None:
    done = dry("--threshold", text)
    assert done.exit_code == 2 and "write none, auto or a number of requests" in " ".join(
        done.output.replace("│", " ").split()
    )


def test_thresholds_that_are_some() -> None:
    done = dry("--threshold", "none, auto,4", "--steps", "3")
    assert json.loads(done.stdout)["points"] == [
        "none", "3,1,4", "3,1,4 off at auto", "3,1,4 off at 4"
    ]  # fmt: skip


@pytest.mark.parametrize("content", ["{", "[]\n", '{"kind": "run", "format": 1}\n'])
def test_a_dry_run_names_a_broken_run_file(content: str, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text(content)
    done = dry("--output", str(tmp_path))
    assert done.exit_code == 2 and "run.jsonl" in "".join(done.output.split())
