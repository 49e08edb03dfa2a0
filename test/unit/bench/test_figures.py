"""The figures that follow from a results file, and the file itself."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from sglang_spec.bench import figures, kernels, picture, record, statistics
from sglang_spec.bench.load import Stream, accept_length, prompts
from sglang_spec.bench.mode import ALL, Settings, launch
from sglang_spec.bench.scene import Ramp
from sglang_spec.bench.shape import Shape
from sglang_spec.models import Pair


def visit(number: int, samples: dict[str, Any], **changed: Any) -> dict[str, Any]:
    settings = {"shape": "llama-8b", "backend": "triton", "num_steps": 3, "threshold": 32}
    return {
        "number": number,
        "date": "2026-01-01T00:00:00+00:00",
        "partial": False,
        "settings": settings | changed.pop("settings", {}),
        "host": {},
        "provenance": {"patch_set": "abc"},
        "servers": {},
        "samples": samples,
        **changed,
    }


def rounds(*values: float, key: str = "tok_s") -> list[dict[str, Any]]:
    return [{"round": number, key: value} for number, value in enumerate(values)]


CELLS = {
    "steady 1024 x 1": {
        "none": rounds(100, 101, 99),
        "static": rounds(200, 202, 198),
        "auto": rounds(198, 200, 196),
    },
    "steady 1024 x 64": {
        "none": rounds(1000, 1010, 990),
        "static": rounds(500, 505, 495),
        "auto": rounds(1010, 1020.1, 999.9),
        "threshold": rounds(995, 1004.95, 985.05),
    },
}


def test_auto_is_held_against_the_best_of_each_cell() -> None:
    found = figures.figures([visit(1, CELLS)])
    few, many = found["auto_vs_best"]["1024"]["1"], found["auto_vs_best"]["1024"]["64"]
    assert (few["best"], many["best"]) == ("static", "none")
    assert few["ratio"] == pytest.approx(0.99, abs=1e-3)
    assert many["ratio"] == pytest.approx(1.01, abs=1e-3)
    # Rounds are paired, so what they have in common is no uncertainty of the ratio.
    assert many["low"] == pytest.approx(1.01, abs=1e-3)
    assert found["auto_geomean"] == pytest.approx((0.99 * 1.01) ** 0.5, abs=1e-3)


def test_off_is_held_against_none_at_the_threshold_and_above() -> None:
    found = figures.figures([visit(1, CELLS)])["off_vs_none"]
    assert found["ratio"] == pytest.approx(0.995, abs=1e-3)
    assert list(found["cells"]) == ["1024"] and list(found["cells"]["1024"]) == ["64"]
    assert figures.figures([visit(1, CELLS, settings={"threshold": 65})])["off_vs_none"] is None


def test_visits_are_put_together_and_configurations_are_not() -> None:
    of_none = {"steady 1024 x 64": {"none": rounds(1000, 1001)}}
    of_auto = {"steady 1024 x 64": {"auto": rounds(900, 902)}}
    found = figures.figures([visit(1, of_none), visit(2, of_auto)])
    cell = found["auto_vs_best"]["1024"]["64"]
    assert cell["ratio"] == pytest.approx(0.9005, abs=1e-3) and cell["low"] < cell["ratio"]
    apart = [visit(1, of_none), visit(2, of_auto, settings={"backend": "flashinfer"})]
    assert figures.figures(apart)["auto_vs_best"] == {}


def test_older_code_says_nothing_of_todays() -> None:
    """Another configuration keeps its own last patch set."""
    old = {"steady 8 x 1": {"none": rounds(10, 10), "auto": rounds(8, 8)}}
    new = {"steady 8 x 1": {"none": rounds(10, 10), "auto": rounds(11, 11)}}
    visits = [visit(1, old), visit(2, new, provenance={"patch_set": "def"})]
    found = figures.figures(visits)
    assert found["auto_vs_best"]["8"]["1"]["ratio"] == pytest.approx(1.1)
    (of_one,) = found["by_configuration"].values()
    assert of_one["visits"] == [2] and len(found["provenance"]) == 2
    apart = [visit(1, old, settings={"backend": "flashinfer"}), visits[1]]
    assert figures.figures(apart)["auto_vs_best"]["8"]["1"]["ratio"] == pytest.approx(0.8)


def test_of_two_backends_the_worse_cell_is_shown() -> None:
    good = {"steady 8 x 1": {"none": rounds(10, 10), "auto": rounds(12, 12)}}
    bad = {"steady 8 x 1": {"none": rounds(10, 10), "auto": rounds(9, 9)}}
    visits = [visit(1, good), visit(2, bad, settings={"backend": "flashinfer"})]
    assert figures.figures(visits)["auto_vs_best"]["8"]["1"]["ratio"] == 0.9


def test_the_other_figures() -> None:
    found = figures.figures(
        [
            visit(
                1,
                {
                    "ramp 64 x 8": {"none": rounds(10, 10), "auto": rounds(12, 12)},
                    "edge 64 x 8": {
                        "auto": [{"round": 0, "tok_s": 1.0, "batches": 500, "switches": 2}]
                    },
                    "return 64 x 8": {
                        "static": rounds(2.5, key="accept_length"),
                        "threshold": rounds(2.45, key="accept_length"),
                    },
                },
                servers={"static": {"state_gb": 2.0}, "auto": {"state_gb": 2.4}},
            )
        ]
    )
    assert found["ramp_vs_best"]["ratio"] == 1.2
    assert found["switches_at_edge"] == 8
    assert found["accept_after_return"] == 0.98
    assert found["state_memory_ratio"] == 1.2


def test_with_nothing_measured_every_figure_is_there_and_empty() -> None:
    found = figures.figures([])
    assert not any(found.values()) and "accept_after_return" in found


def test_ratio_with_too_few_measurements_has_no_bound() -> None:
    assert statistics.ratio({1: 2.0}, {2: 1.0}) == statistics.Ratio(2.0, None)
    assert statistics.ratio({1: 2.0, 2: 2.2}, {1: 1.0, 2: 1.0}).low < 2.1
    unequal = statistics.ratio({1: 2.0, 2: 2.2}, {3: 1.0, 4: 1.0, 5: 1.1})
    assert unequal.low is not None and unequal.low < unequal.ratio


def test_a_record_is_whole_at_any_moment_and_grows_by_visits(tmp_path: Path) -> None:
    path = tmp_path / "results/threshold.json"
    first = record.Record(path, visit(0, {})["settings"])
    first.add("steady 8 x 1", "none", 0, {"tok_s": 10.0})
    kept = json.loads(path.read_text())["visits"]
    assert kept[0]["partial"] and kept[0]["samples"]["steady 8 x 1"]["none"][0]["tok_s"] == 10.0
    first.end("interrupted")
    second = record.Record(path, visit(0, {})["settings"])
    second.add("steady 8 x 1", "auto", 0, {"tok_s": 11.0})
    second.end(None)
    content = json.loads(path.read_text())
    assert [v["number"] for v in content["visits"]] == [1, 2]
    assert [v["partial"] for v in content["visits"]] == [True, False]
    assert content["auto_vs_best"]["8"]["1"]["ratio"] == 1.1
    assert content["by_configuration"]["llama-8b, triton, 3 steps"]["partial"] == [1]
    picture.draw(content["visits"], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000


def test_a_file_that_is_no_record_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("[1, 2]")
    with pytest.raises(record.RecordError, match="holds no visits"):
        record.Record(path, {})
    assert path.read_text() == "[1, 2]"


def test_every_mode_has_its_own_launch(tmp_path: Path) -> None:
    shape = Shape("s", lambda: Pair(tmp_path, tmp_path), (8, 9))
    settings = Settings(shape, "triton", most_requests=64, kv_tokens=4096)
    commands = {name: " ".join(launch(name, settings).command(1)) for name in ALL}
    assert len(set(commands.values())) == len(ALL)
    assert "--speculative" not in commands["none"]
    assert "--speculative-disable-batch-threshold auto" in commands["auto"]
    assert all("--max-running-requests 64 " in command for command in commands.values())
    with pytest.raises(ValueError, match="known are none"):
        launch("fast", settings)


def test_a_ramp_goes_up_and_down_again() -> None:
    shape = Shape("s", lambda: Pair(Path(), Path()), (8, 9))
    assert Ramp(shape, 8, 8, 1).levels() == [1, 2, 4, 8, 4, 2, 1]
    assert Ramp(shape, 8, 6, 1).levels() == [1, 2, 4, 6, 4, 2, 1]


def test_prompts_are_the_same_each_time_and_differ_from_each_other() -> None:
    made = prompts(3, 20, (8, 500), 1)
    assert made == prompts(3, 20, (8, 500), 1) and len({tuple(ids) for ids in made}) == 3
    assert made[:2] == prompts(2, 20, (8, 500), 1)


def test_tokens_between_two_notes_are_linear() -> None:
    stream = Stream([1.0, 2.0], [8, 16], {"spec_verify_ct": 4, "spec_num_correct_drafts": 6})
    assert [stream.tokens_at(s) for s in (0.5, 1.0, 1.5, 2.0, 9.0)] == [0, 8, 12, 16, 16]
    assert accept_length([stream, stream]) == 2.5
    assert accept_length([Stream()]) is None


def test_cycles_are_counted_whatever_was_accepted_in_them() -> None:
    """The first token is of the prefill; a last cycle that is cut short is one all the same."""
    whole = Stream([1.0, 2.0, 3.0], [1, 5, 8], {"spec_verify_ct": 2})
    assert whole.cycles_between(1.0, 3.0) == 2
    assert whole.cycles_between(1.0, 2.0) == pytest.approx(2 * 4 / 7)
    late = Stream([1.0, 3.0], [5, 9], {"spec_verify_ct": 2})  # two chunks came as one
    assert late.cycles_between(1.0, 3.0) == 1
    assert Stream([1.0, 2.0], [1, 9]).cycles_between(1.0, 2.0) is None
    assert Stream([1.0], [1], {"spec_verify_ct": 1}).cycles_between(1.0, 1.0) is None


def test_a_median_lies_between_its_bounds_in_95_of_100_cases() -> None:
    """By counting: of n values, how often the k-th from below and from above enclose the median."""
    for count in (6, 7, 20, 40, 101):
        found = statistics.median(range(count))
        assert found.low is not None and found.high is not None
        missed = 2 * sum(math.comb(count, below) for below in range(int(found.low) + 1)) / 2**count
        closer = missed + 2 * math.comb(count, int(found.low) + 1) / 2**count
        assert missed <= 0.05 < closer, count
        assert found.low + found.high == count - 1
    assert statistics.median([3.0, 1.0, 2.0]) == statistics.Median(2.0, None, None)
    disturbed = statistics.median([0.1, 0.1, 0.2, 0.2, 0.2, 0.3, 0.3, 0.3, 90.0])
    assert (disturbed.value, disturbed.high) == (0.2, 0.3)


def event(category: str, name: str, start: float, took: float, **arguments: Any) -> dict[str, Any]:
    return {"cat": category, "name": name, "ts": start, "dur": took, "args": arguments}


def test_a_profile_says_what_ran_and_what_grows() -> None:
    def of(rows: int) -> dict[str, Any]:
        events = [
            event("kernel", "void attend<bf16, 64>(x)", 0, 1000.0 * rows, **{"graph node id": 7}),
            event("kernel", "copy", 500, 1000.0),  # beside the first
            event("cuda_runtime", "cudaGraphLaunch", 0, 5),
            event("gpu_user_annotation", "verify", 0, 2000.0),
        ]
        return {"concurrency": rows, **kernels.digest(events, steps=1)}

    few, many = of(2), of(10)
    assert few["span_ms"] == few["busy_ms"] == 2.0 and many["busy_ms"] == 10.0
    assert (few["kernels"], few["in_graphs"], few["calls"]) == (2, 1, {"cudaGraphLaunch": 1})
    assert few["spans_ms"] == {"verify": 2.0}
    grows = kernels.growth(few, many)
    assert grows["attend"] == 1.0 and grows["copy"] == 0.0 and grows["(span of a step)"] == 1.0


def test_without_a_gpu_operators_stand_for_kernels() -> None:
    found = kernels.digest([event("cpu_op", "aten::mm", 0, 10.0)], steps=1)
    assert list(found["by_name"]) == ["aten::mm"] and found["in_graphs"] == 0
