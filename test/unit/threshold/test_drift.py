"""A machine that is slower than at start moves the crossing; noise and outliers do not."""

from __future__ import annotations

import math
import random

import pytest
from sglang_spec.hardening.threshold.acceptance import Acceptance
from sglang_spec.hardening.threshold.auto import AutoDecider
from sglang_spec.hardening.threshold.cost import CYCLE, PHASES, STEP, CostTable, Line
from sglang_spec.hardening.threshold.drift import Drift, Pace
from sglang_spec.hardening.threshold.rules import Rules
from sglang_spec.hardening.threshold.sampler import WARM

ROWS = (1, 2, 4, 8, 16, 32, 64)
PACE = Pace()


def line(context: int, rows: tuple[int, ...], longer: float = 1.0) -> Line:
    """Steps of 5 ms, cycles of 6 ms and 0.15 for each request: with 2.5 tokens it pays to 43."""
    seconds = {
        **{phase: tuple(2.5e-3 * longer for _ in rows) for phase in STEP},
        **{phase: tuple((6e-3 + 1.5e-4 * n) * longer / 4 for n in rows) for phase in CYCLE},
    }
    assert set(seconds) == set(PHASES)
    return Line(context, rows, seconds, tuple(5e-4 for _ in rows))


def start() -> CostTable:
    return CostTable(4, (line(1000, ROWS), line(8000, ROWS[:4], 1.5)))


class Server:
    """A drift and the deciders of two ranks, which take its tables at the same batch."""

    def __init__(self, accept: int = 3, pace: Pace = PACE) -> None:
        self.drift = Drift(start(), pace)
        self.ranks = [AutoDecider(Acceptance(3), None, start()) for _ in range(2)]
        for rank in self.ranks:
            rank.observe([accept] * 4096)
        self.refreshes = 0
        # How many times as long as the start's table says.
        self.step = self.cycle = 1.0
        self.noise = lambda: 1.0

    def run(self, batches: int, rows: int, context: int = 1000, timed: int = 1) -> list[bool]:
        """What was decided for batches of so many requests, one in `timed` of them timed."""
        decided = []
        for _ in range(batches):
            # As a message travels: written out and read again.
            if (table := self.drift.look()) is not None:
                self.refreshes += 1
                for rank in self.ranks:
                    rank.refresh(CostTable.from_dict(table.as_dict()))
            on, other = (rank.decide(rows, rows * context) for rank in self.ranks)
            assert on == other
            decided.append(on)
            self.drift.batch()
            if len(decided) % timed == 0:
                self.drift.add(on, rows, context, self.took(on, rows, context))
        return decided

    def took(self, on: bool, rows: int, context: int) -> float:
        table = self.drift.start
        if on:
            return self.noise() * self.cycle * table.cycle_seconds(rows, context)
        return self.noise() * self.step * (table.step_seconds(rows, context) - 5e-4)

    @property
    def crossing(self) -> int | None:
        return self.ranks[0].crossing(1000)


def test_cycles_that_take_twice_as_long_move_the_crossing_within_256_batches() -> None:
    server = Server(accept=2)
    before = server.crossing
    assert before is not None and all(server.run(500, 32)) and server.refreshes == 0
    server.cycle = 2.0
    server.run(256, 32)
    after = server.crossing
    assert after is not None and after < before / 2, (before, after)
    assert not server.ranks[0].on and server.ranks[0].refreshes.times == server.refreshes > 0
    assert all(server.run(100, 1, 1000)[40:])


def test_a_change_is_bounded_at_each_refresh() -> None:
    server = Server()
    server.cycle = 2.0
    server.run(PACE.every + 1, 8)
    assert server.refreshes == 1
    ratios = server.ranks[0].refreshes.ratios(server.ranks[0].table, "cycle")  # type: ignore[arg-type]
    assert max(ratios[0]) == pytest.approx(PACE.most)


def test_it_follows_back_when_the_machine_is_as_at_start_again() -> None:
    server = Server()
    before = server.crossing
    server.cycle = 1.5
    server.run(2000, 4)
    assert server.crossing != before
    server.cycle = 1.0
    server.run(2000, 4)
    assert server.crossing == pytest.approx(before, abs=3)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rows", [8, 44, 60])
def test_noise_of_a_fifth_does_not_flap(rows: int, seed: int) -> None:
    """With 2.5 tokens a cycle the crossing lies at 44 requests."""
    dice = random.Random(seed)
    server = Server()
    for rank in server.ranks:
        rank.acceptance = Acceptance(3)
        for _ in range(2048):
            rank.observe([1, 2])
    server.noise = lambda: dice.uniform(0.8, 1.2)
    server.run(4000, rows)
    switches, refreshes = server.ranks[0].switches, server.refreshes
    # Where it hardly matters it may change now and then: once in 500 batches is no flapping.
    assert switches <= (8 if rows == 44 else 1) and refreshes <= 12, (switches, refreshes)


def test_a_single_outlier_changes_nothing() -> None:
    server = Server()
    server.run(1000, 32)
    for absurd in (1e3, 1e-9):
        server.drift.add(True, 32, 1000, absurd)
        server.run(200, 32)
    assert server.refreshes == 0


def changed(ratios: list[float]) -> float | None:
    """What a look makes of cycles of 8 requests that took so many times as long; None: nothing."""
    drift = Drift(start())
    for _ in range(PACE.every):
        drift.batch()
    for ratio in ratios:
        drift.add(True, 8, 1000, ratio * drift.start.cycle_seconds(8, 1000))
    table = drift.look()
    return table and table.cycle_seconds(8, 1000) / drift.start.cycle_seconds(8, 1000)


def test_few_times_that_scatter_are_no_change() -> None:
    """Six of eight on one side is what chance gives in one of seven cases."""
    assert changed([1.2] * 6 + [0.9] * 2) is None
    assert changed([1.2] * 8) == pytest.approx(1.2)


def test_an_outlier_is_no_part_of_a_change() -> None:
    assert changed([1.2] * 10 + [8.0]) == pytest.approx(1.2)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, 0.0, -1.0])
def test_what_is_no_time_is_left_out(seconds: float) -> None:
    drift = Drift(start())
    for _ in range(1000):
        drift.batch()
        drift.add(True, 8, 1000, seconds)
        assert drift.look() is None
    assert drift.samples == 0


def test_absurd_times_count_as_the_limit_and_no_more() -> None:
    server = Server()
    server.cycle = 1e6
    server.run(3000, 8)
    shown = server.ranks[0].refreshes.ratios(server.ranks[0].table, "cycle")  # type: ignore[arg-type]
    assert max(shown[0]) <= PACE.limit * (1 + PACE.least)


def test_too_few_samples_change_nothing() -> None:
    drift = Drift(start())
    for _ in range(PACE.fewest - 1):
        drift.add(True, 8, 1000, 1.0)
    for _ in range(200):
        drift.batch()
        assert drift.look() is None
    drift.add(True, 8, 1000, 1.0)
    for _ in range(PACE.every):
        drift.batch()
    assert drift.look() is not None


def test_old_samples_say_nothing_of_now() -> None:
    drift = Drift(start())
    for _ in range(100):
        drift.add(True, 8, 1000, 1.0)
    for _ in range(PACE.fresh + 1):
        drift.batch()
    assert drift.look() is None


def test_cells_that_were_not_seen_follow_the_nearest_of_their_kind() -> None:
    server = Server()
    server.cycle = 1.2
    server.run(1000, 4)
    server.cycle = 2.0
    server.run(300, 64)
    table = server.ranks[0].table
    assert table is not None
    cycles, longer = server.ranks[0].refreshes.ratios(table, "cycle")
    assert cycles[:3] == pytest.approx([1.2] * 3, rel=0.06)
    assert min(cycles[-2:]) > 1.5 and longer[0] == pytest.approx(1.2, rel=0.06)
    steps = server.ranks[0].refreshes.ratios(table, "step")
    assert steps == [(1.0,) * 7, (1.0,) * 4], "plain steps take what they took"


def test_a_catching_up_that_is_not_in_a_step_is_not_missed_in_it() -> None:
    """A tenth of a step is the share of the draft's catching up, which one in 16 runs."""
    server = Server(accept=0)
    server.run(1000, 8)
    assert not server.ranks[0].on and server.drift.samples == 1000 and server.refreshes == 0


def after_a_slow_spell() -> Server:
    """Off because cycles were slow, which they are no more. Accepted drafts are plenty, so that
    nothing else would have it tried."""
    server = Server()
    server.cycle = 4.0
    server.run(600, 16)
    assert not server.ranks[0].on
    server.cycle = 1.0
    return server


def test_what_made_cycles_slow_may_be_gone_so_they_are_tried_again() -> None:
    assert all(after_a_slow_spell().run(4000, 16)[-500:])


def test_so_they_are_where_prefills_leave_too_few_times_of_a_try() -> None:
    assert all(after_a_slow_spell().run(12_000, 16, timed=5)[-500:])


def test_a_cell_that_is_seldom_used_does_not_keep_what_it_had() -> None:
    server = Server()
    server.step = server.cycle = 3.0
    server.run(600, 1)
    server.step = server.cycle = 1.0
    for _ in range(20):
        server.run(1000, 16)
        server.run(1, 1)
    ratios = server.ranks[0].refreshes.ratios(server.ranks[0].table, "cycle")
    assert ratios[0][0] < 1.1


def test_without_a_change_it_is_not_tried_for_load_alone() -> None:
    server = Server(accept=1)
    server.run(100, 64)
    assert not any(server.run(10_000, 64))


def test_a_probe_is_long_enough_to_be_timed_at_every_dwell() -> None:
    assert Rules(dwell=1).probe - WARM >= PACE.fewest
