"""The cost table: what it answers between and beyond what was measured, and what it refuses."""

import dataclasses
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.spec_hardening.threshold.cost import CYCLE, PHASES, CostError, CostTable, Line

ROWS = (1, 8, 64)


def line(context: int, rows: tuple[int, ...], base: float, per_row: float) -> Line:
    """Every phase takes base + per_row * rows seconds."""
    return Line(context, rows, {phase: tuple(base + per_row * n for n in rows) for phase in PHASES})


def table() -> CostTable:
    """The longer line was measured with fewer rows, as when the KV cache is full."""
    return CostTable(4, (line(1000, ROWS, 1e-3, 1e-5), line(5000, ROWS[:2], 1e-3, 5e-5)))


@pytest.mark.parametrize("rows", [1, 5, 8, 40, 64, 100])
def test_rows_are_interpolated_and_extended(rows: int) -> None:
    assert math.isclose(table().step_seconds(rows, 1000), 2 * (1e-3 + 1e-5 * rows))
    assert math.isclose(table().cycle_seconds(rows, 1000), 4 * (1e-3 + 1e-5 * rows))
    assert math.isclose(table().phase_seconds("verify", rows, 10), 1e-3 + 1e-5 * rows)


@pytest.mark.parametrize("rows", [1, 8, 64, 100])
@pytest.mark.parametrize("context", [1000, 2000, 5000, 9000])
def test_context_adds_in_proportion_to_rows(rows: int, context: int) -> None:
    """Also where the long context could not be measured with so many rows."""
    added = 4e-5 * (context - 1000) / 4000
    assert math.isclose(table().step_seconds(rows, context), 2 * (1e-3 + (1e-5 + added) * rows))


def test_a_single_line_and_a_single_number_of_rows() -> None:
    one = CostTable(2, (line(100, (4,), 1e-3, 0.0),))
    assert one.step_seconds(1, 1) == one.step_seconds(64, 10_000) == 2e-3
    assert one.most_rows == 4


def test_falling_costs_are_not_extended_below_what_was_measured() -> None:
    falling = Line(100, (1, 2), {phase: (2e-3, 1e-3) for phase in PHASES})
    assert CostTable(2, (falling,)).step_seconds(50, 100) == 2e-3
    shorter = line(100, ROWS, 2e-3, 0.0)
    assert CostTable(2, (shorter, line(200, ROWS, 1e-3, 0.0))).step_seconds(8, 400) == 4e-3


@settings(deadline=None)
@given(
    st.integers(1, 300),
    st.integers(1, 50_000),
    st.lists(st.floats(1e-5, 1e-1), min_size=6, max_size=6),
)
def test_what_it_answers_is_a_finite_time(rows: int, context: int, seconds: list[float]) -> None:
    def of(scale: float, known: tuple[int, ...]) -> dict[str, tuple[float, ...]]:
        return {
            phase: tuple(scale * value * n for n in known)
            for phase, value in zip(PHASES, seconds, strict=True)
        }

    made = CostTable(4, (Line(512, ROWS, of(1, ROWS)), Line(4096, (1, 4), of(3, (1, 4)))))
    for value in (made.step_seconds(rows, context), made.cycle_seconds(rows, context)):
        assert math.isfinite(value) and value > 0


def test_it_travels_as_json() -> None:
    owing = CostTable(4, (dataclasses.replace(table().lines[0], owed=(1e-4, 2e-4, 3e-4)),))
    for one in (table(), owing):
        assert CostTable.from_dict(json.loads(json.dumps(one.as_dict()))) == one


def test_a_line_is_scaled_by_cell_and_phase() -> None:
    made = line(1000, ROWS, 1e-3, 0.0)
    made = dataclasses.replace(made, owed=(1e-4,) * 3)
    twice = made.scaled(lambda at, phase: 2.0 if at == 1 and phase != "draft" else 1.0)
    assert twice.seconds["verify"] == (1e-3, 2e-3, 1e-3) and twice.owed == (1e-4, 2e-4, 1e-4)
    assert twice.seconds["draft"] == made.seconds["draft"]
    assert [made.nearest(rows) for rows in (1, 2, 3, 22, 23, 500)] == [0, 0, 1, 1, 2, 2]


def damaged(change) -> dict:
    data = json.loads(json.dumps(table().as_dict()))
    change(data)
    return data


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda d: d.update(colour=1), "unknown colour"),
        (lambda d: d.pop("num_draft_tokens"), "num_draft_tokens missing"),
        (lambda d: d.update(num_draft_tokens=1), "num_draft_tokens: 1"),
        (lambda d: d.update(lines=[]), "lines: contexts"),
        (lambda d: d["lines"].reverse(), "ascending"),
        (lambda d: d["lines"][0].update(host="a"), r"lines\[0\]: unknown host"),
        (lambda d: d["lines"][0].update(context=0), "context: 0"),
        (lambda d: d["lines"][0].update(rows=[8, 1, 64]), r"rows: \[8, 1, 64\]"),
        (lambda d: d["lines"][0]["seconds"].update(prefill=[1, 1, 1]), "unknown prefill"),
        (lambda d: d["lines"][0]["seconds"].pop("draft"), "draft missing"),
        (lambda d: d["lines"][0].update(owed=[1]), "owed: 1 values for 3"),
        (lambda d: d["lines"][0].update(owed=[1, math.inf, 1]), "owed: inf"),
        (lambda d: d["lines"][0]["seconds"].update(draft=[1]), "seconds.draft: 1 values for 3"),
        (lambda d: d["lines"][0]["seconds"].update(draft=[1, -1, 1]), "seconds.draft: -1"),
        (lambda d: d["lines"][0]["seconds"].update(draft=[1, math.nan, 1]), "seconds.draft: nan"),
        (
            lambda d: d["lines"][0]["seconds"].update({phase: [0, 0, 0] for phase in CYCLE}),
            "draft_extend .* 0 seconds",
        ),
    ],
)
def test_what_it_refuses(change, words: str) -> None:
    with pytest.raises(CostError, match=words):
        CostTable.from_dict(damaged(change))
