"""When `auto` speculates: where it pays, without thrashing, alike on every rank."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.spec_hardening.threshold.acceptance import Acceptance
from sglang.srt.spec_hardening.threshold.auto import AutoDecider
from sglang.srt.spec_hardening.threshold.cost import PHASES, CostTable, Line
from sglang.srt.spec_hardening.threshold.rules import Rules

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


def seconds(step, cycle) -> dict[str, tuple[float, ...]]:
    """Phases of a step and a cycle whose whole seconds are the two functions of the rows."""
    parts = {
        "decode": [0.9 * step(n) for n in ROWS],
        "decode_rest": [0.1 * step(n) for n in ROWS],
        "draft": [0.2 * cycle(n) for n in ROWS],
        "verify": [0.6 * cycle(n) for n in ROWS],
        "draft_extend": [0.1 * cycle(n) for n in ROWS],
        "cycle_rest": [0.1 * cycle(n) for n in ROWS],
    }
    assert set(parts) == set(PHASES)
    return {phase: tuple(values) for phase, values in parts.items()}


def measured() -> CostTable:
    """With 2.5 tokens a cycle: 2.5 * 5 / (6 + 0.15 n) falls under 1 between 43 and 44 rows."""
    line = Line(1000, ROWS, seconds(lambda n: 5e-3, lambda n: 6e-3 + 1.5e-4 * n))
    return CostTable(4, (line,))


def decider(accept: float = 2.5, rules: Rules | None = None) -> AutoDecider:
    """A decider whose traffic has this accept length."""
    made = AutoDecider(Acceptance(3), rules, measured())
    feed(made, accept, 5000)
    return made


def feed(made: AutoDecider, accept: float, cycles: int) -> None:
    """`cycles` rows, so many of them with all three drafts right that the mean is `accept`."""
    share, owed = (accept - 1) / 3, 0.0
    for _ in range(cycles // 20):
        batch = []
        for _ in range(20):
            owed += share
            batch.append(3 if owed >= 1 else 0)
            owed -= owed >= 1
        made.observe(batch)


def settle(made: AutoDecider, rows: int, batches: int = 100) -> bool:
    return [made.decide(rows, 1000 * rows) for _ in range(batches)][-1]


def test_without_a_table_it_speculates_and_says_so() -> None:
    made = AutoDecider(Acceptance(3))
    assert all(made.decide(rows, 10 * rows) for rows in (1, 128, 1))
    assert made.reason == "on: the costs of a step were not measured (the server is starting)"
    assert made.crossing(1000) is None


@pytest.mark.parametrize("rows, on", [(1, True), (8, True), (32, True), (64, False), (128, False)])
def test_it_speculates_where_it_pays(rows: int, on: bool) -> None:
    assert settle(decider(), rows) is on


def test_more_accepted_drafts_move_the_crossing() -> None:
    assert decider(2.5).crossing(1000) in (42, 43, 44, 45)
    assert decider(1.05).crossing(1000) == 1
    assert decider(3.9).crossing(1000) in range(85, 95)


def test_longer_contexts_have_a_crossing_of_their_own() -> None:
    short = measured().lines[0]
    slow = Line(8000, ROWS, seconds(lambda n: 5e-3 + 4e-4 * n, lambda n: 6e-3 + 5.5e-4 * n))
    made = AutoDecider(Acceptance(3), None, CostTable(4, (short, slow)))
    feed(made, 2.5, 5000)
    assert made.crossing(1000) in range(42, 46)
    assert made.crossing(8000) is None  # reading the context costs both the same
    assert not settle(made, 64)
    assert [made.decide(64, 8000 * 64) for _ in range(100)][-1]


def test_a_clear_change_of_load_is_followed_within_a_dwell() -> None:
    made = decider(rules=Rules(dwell=8))
    settle(made, 1)
    off_after = next(i for i in range(100) if not made.decide(128, 128_000))
    assert off_after == 0, "a cycle as long as five steps was paid to learn what the table says"
    on_after = next(i for i in range(100) if made.decide(1, 1000))
    assert on_after == 8


def test_a_burst_right_after_the_return_does_not_wait_for_the_dwell() -> None:
    """At 128 rows a cycle loses 2.5 plain steps: three are paid, not the sixteen of the dwell."""
    made = decider()
    settle(made, 128)
    assert settle(made, 1) and not made.decide(128, 128_000)
    while not made.decide(1, 1000):
        pass
    assert next(i for i in range(100) if not made.decide(128, 128_000)) == 3


def test_a_small_loss_waits_for_the_dwell() -> None:
    """At 50 rows a cycle loses a fifth of a plain step."""
    made = decider()
    settle(made, 128)
    while not made.decide(1, 1000):
        pass
    assert next(i for i in range(100) if not made.decide(50, 50_000)) == 16


def test_a_probe_has_its_dwell_though_little_is_expected_of_it() -> None:
    made = AutoDecider(Acceptance(3), None, measured())
    feed(made, 1.0, 5000)
    settle(made, 28, 10)
    assert not made.on
    tried = [made.decide(28, 28_000) for _ in range(1000)]
    assert sum(tried[: tried.index(True) + 100]) == 17, "a cycle loses a step, the limit is eight"


@pytest.mark.parametrize("swing", [(43, 44), (42, 46), (30, 60)])
@pytest.mark.parametrize("dwell", [0, 16])
def test_swinging_about_the_crossing_does_not_thrash(swing: tuple[int, int], dwell: int) -> None:
    made = decider(rules=Rules(dwell=dwell))
    for batch in range(2000):
        rows = swing[batch % 2]
        made.decide(rows, 1000 * rows)
    assert made.switches <= 2


def test_a_small_loss_is_borne_until_it_adds_up() -> None:
    """At 50 rows a cycle loses a fifth of a plain step: off after five, not at the first."""
    made = decider()
    settle(made, 1)
    assert next(i for i in range(100) if not made.decide(50, 50_000)) == 4


def test_edges_of_a_captured_graph_do_not_thrash_either() -> None:
    """At 64 rows the next graph is taken: gain 1.2 on one side of the edge, 0.8 on the other."""
    jump = seconds(lambda n: 5e-3, lambda n: 1e-2 if n < 64 else 1.6e-2)
    rows = (*ROWS[:6], 63, *ROWS[6:])
    parts = {phase: (*values[:6], values[5], *values[6:]) for phase, values in jump.items()}
    made = AutoDecider(Acceptance(3), None, CostTable(4, (Line(1000, rows, parts),)))
    feed(made, 2.5, 5000)
    assert made.gain(63, 1000) > 1.15 and made.gain(64, 1000) < 0.85
    for batch in range(2000):
        made.decide(63 + batch % 2, 64_000)
    assert made.switches <= 20


def test_a_draft_that_stops_to_fit_is_switched_off_and_tried_again_ever_less_often() -> None:
    made = decider()
    tried = []
    for batch in range(20_000):
        if made.decide(8, 8000):
            made.observe([0] * 8)
            tried.append(batch)
    assert not made.on
    begun = [b for a, b in pairwise(tried) if b > a + 1]
    gaps = [b - a for a, b in pairwise(begun)]
    assert len(begun) >= 4 and gaps == sorted(gaps) and gaps[-1] > 1.8 * gaps[-2]
    assert len(tried) < 0.02 * 20_000


def test_a_draft_that_fits_again_is_found() -> None:
    made = decider()
    for batch in range(4000):
        if made.decide(8, 8000):
            made.observe([0 if batch < 2000 else 3] * 8)
        if batch == 1999:
            assert not made.on
    assert made.on and "probe" not in made.reason


def h200() -> CostTable:
    """What an H200 took for an 8B model at 1k of context, in rounded milliseconds."""
    step = (5.0, 5.0, 5.1, 5.2, 5.6, 6.4, 8.0, 11.3)
    cycle = (7.9, 7.9, 8.0, 10.1, 14.1, 21.8, 41.7, 85.9)
    parts = seconds(
        dict(zip(ROWS, (1e-3 * ms for ms in step), strict=True)).__getitem__,
        dict(zip(ROWS, (1e-3 * ms for ms in cycle), strict=True)).__getitem__,
    )
    return CostTable(4, (Line(1000, ROWS, parts),))


@pytest.mark.parametrize("seed", range(5))
def test_a_ramp_takes_hardly_longer_than_with_the_better_of_the_two_all_along(seed: int) -> None:
    """128 tokens for each of 1, 2, 4 … 128 … 1 requests, of which a cycle gives two or three."""
    table, dice = h200(), random.Random(seed)
    made = AutoDecider(Acceptance(3), None, table)
    took = least = 0.0
    for rows in (*ROWS, *reversed(ROWS[:-1])):
        step, cycle = table.step_seconds(rows, 1000), table.cycle_seconds(rows, 1000)
        least += 128 * min(step, cycle / 2.5)
        tokens, late = 0, None
        while tokens < 128:
            on = made.decide(rows, 1000 * rows)
            if late is not None:
                made.observe([late] * rows)
            late = dice.choice([1, 2]) if on else None  # overlap: known after the next launch
            tokens += 1 if late is None else late + 1
            took += cycle if on else step
    assert least / took > 0.97


def test_load_alone_is_never_probed() -> None:
    made = decider()
    settle(made, 128)
    switches = made.switches
    settle(made, 128, 30_000)
    assert made.switches == switches


def test_an_empty_batch_changes_nothing() -> None:
    made = decider(rules=Rules(dwell=0))
    before = (settle(made, 1), made.switches)
    assert [made.decide(0, 0) for _ in range(50)] == [before[0]] * 50
    assert made.switches == before[1]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_equal_inputs_give_equal_decisions(seed: int) -> None:
    """Ranks see the same counts and results and hold the table that was sent as a dict."""
    ranks = [decider() for _ in range(3)]
    for rank in ranks[1:]:
        rank.table = CostTable.from_dict(ranks[0].table.as_dict())
    generator = random.Random(seed)
    for _ in range(300):
        rows = generator.randint(0, 128)
        tokens = rows * generator.randint(1, 9000)
        decided = {rank.decide(rows, tokens) for rank in ranks}
        assert len(decided) == 1
        if decided.pop():
            results = [generator.randint(0, 3) for _ in range(rows)]
            for rank in ranks:
                rank.observe(results)
    assert len({rank.reason for rank in ranks}) == 1


def test_the_reason_is_a_sentence_with_the_figures() -> None:
    made = decider()
    settle(made, 8)
    assert made.reason.startswith("on: 8 requests of 1000 tokens decode in 5.00 ms, a speculative ")
    assert "it stops to pay at 4" in made.reason
    made.decide(50, 50_000)
    assert made.reason.startswith("on, kept until the other has been better for a while: 50 ")
    settle(made, 128)
    assert made.reason.startswith("off: 128 requests of 1000 tokens")
    assert "times the speed" in made.reason


def test_what_server_info_shows() -> None:
    made = decider()
    settle(made, 64)
    shown = made.details()
    assert shown["off_from_requests"] == {"1000": made.crossing(1000)}
    (line,) = shown["milliseconds"]
    assert line["requests"] == list(ROWS) and line["decode"] == [4.5] * len(ROWS)
    assert line["gain"][0] > 1 > line["gain"][-1]
