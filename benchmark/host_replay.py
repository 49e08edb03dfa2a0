"""What a rank calls of our modules in one decode cycle, without a model, a server or a GPU.

The number of the calls is that of a server (`CALLS`, counted by `host_cost.py --count`); what they
are given is made here. Used by `host_cost.py`.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from kit.launches import Launches
from kit.verify_steps import Batch, Request, chains
from sglang.srt.spec_hardening import construction, cycle, record
from sglang.srt.spec_hardening.fidelity import window
from sglang.srt.spec_hardening.threshold.stopwatch import Stopwatch
from sglang.srt.spec_hardening.watch import live
from sglang.srt.spec_hardening.watch.settings import Level

STEPS = 3
LOG_EVERY = 40  # cycles, upstream's --decode-log-interval
SECONDS = 0.0044  # of a cycle: what happens twice a second does so every 114th
# How often a cycle of a chain calls each; the first four make marks where phases are watched.
CALLS = {"launched": 1, "enter": 3, "begin": 2, "ended": 1, "completed": 1, "observe": 1}
# In the order of what is added: each has all of what stands before it.
LEVELS = ("nothing", "counts", "tallies", "phases", "prometheus")
PENALTIES: dict[str, dict[str, float]] = {
    "all": {"frequency_penalty": 0.25, "presence_penalty": 0.25, "repetition_penalty": 1.05},
    "frequency": {"frequency_penalty": 0.25},
    "repetition": {"repetition_penalty": 1.05},
}


class Row:
    """What the watch reads of a `Req`."""

    sampling_params = SimpleNamespace(temperature=1.0, top_k=1)
    is_retracted = False
    finished_reason = None

    def __init__(self, rid: str) -> None:
        self.rid = rid

    def finished(self) -> bool:
        return self.finished_reason is not None


class Event:
    """In place of a CUDA event: counts what is asked of it, and is always done."""

    asked: ClassVar[Counter[str]] = Counter()

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.asked["record"] += 1

    def query(self) -> bool:
        self.asked["query"] += 1
        return True

    def elapsed_time(self, ended: Event) -> float:
        self.asked["elapsed_time"] += 1
        return 0.5


class Watched:
    """Cycles of one rank with each of `LEVELS`; `run(level, rows, cycles)`."""

    def __init__(self) -> None:
        self._now = 0.0
        live.time = SimpleNamespace(monotonic=lambda: self._now)
        live.get_parallel = lambda: SimpleNamespace(attn_dp_rank=0, dp_rank=None, pp_size=1)
        live.get_spec = lambda: SimpleNamespace(speculative_disable_batch_threshold=None)
        board = record.Board.create()
        page = board.claim("rank TP0")
        self._watches: dict[str, live.Watch | None] = {"nothing": None}
        for level in LEVELS[1:]:
            construction._rank = None if level == "counts" else page
            self._watches[level] = self._watch(level)
        construction._rank = page
        os.environ.pop(record.PATH_VARIABLE, None)
        self._batches: dict[int, tuple[Any, list[Any]]] = {}

    def run(self, level: str, rows: int, cycles: int) -> None:
        live._watch = watch = self._watches[level]
        cycle.watch_with(watch)
        batch, results = self._batches.setdefault(rows, _made(rows))
        for number, result in zip(range(cycles), itertools.cycle(results), strict=False):
            self._now += SECONDS
            cycle.launched(batch)
            cycle.enter("draft")
            cycle.enter("verify")
            cycle.begin("verify")
            cycle.begin("sample")
            cycle.enter("draft_extend")
            cycle.ended()
            cycle.completed()
            live.observe(batch, result)
            if number % LOG_EVERY == 0:
                live.log_part()

    def _watch(self, level: str) -> live.Watch:
        metrics = level == "prometheus"
        reporter = SimpleNamespace(
            is_stats_logging_rank=True, current_scheduler_metrics_enabled=metrics
        )
        labels = {name: "x" for name in ("model_name", "engine_type", "tp_rank", "pp_rank")}
        scheduler = SimpleNamespace(
            device="cuda",
            metrics_reporter=reporter,
            metrics_collector=SimpleNamespace(labels=labels),
        )
        worker = SimpleNamespace(topk=1, adaptive_controller=None, speculative_num_steps=STEPS)
        timed = metrics or level == "phases"
        # As on a GPU, whose events cost nothing here.
        plain, Stopwatch.__init__ = Stopwatch.__init__, _with_events  # type: ignore[method-assign]
        try:
            return live.Watch(
                scheduler,
                worker,
                Level.PHASES if timed else Level.COUNTS,
                {"state": "proven", "accept_length": 2.5},
            )
        finally:
            Stopwatch.__init__ = plain  # type: ignore[method-assign]


def _with_events(self: Stopwatch, device: str) -> None:
    self._device, self._module = device, SimpleNamespace(Event=Event)


def _made(rows: int) -> tuple[Any, list[Any]]:
    mode = SimpleNamespace(is_idle=lambda: False)
    batch = SimpleNamespace(reqs=[Row(f"{row:032x}") for row in range(rows)], forward_mode=mode)
    results = [
        SimpleNamespace(
            num_correct_drafts_per_req_cpu=[(row + number) % (STEPS + 1) for row in range(rows)],
            is_plain_step=False,
            speculative_num_draft_tokens=STEPS + 1,
        )
        for number in range(4)
    ]
    return batch, results


class Penalized:
    """Verify steps of a batch with penalties, each accepting two tokens; `run(steps)`."""

    def __init__(self, rows: int, asked: dict[str, float], vocabulary: int) -> None:
        window._BOOKS.clear()
        self._batch = Batch([Request([5], max_new_tokens=9999, **asked) for _ in range(rows)])
        nodes = STEPS + 1
        self._verify = chains([[5, 6, 7, 8]] * rows)
        self._logits = torch.randn(rows * nodes, vocabulary)
        self._index = torch.full((rows, nodes), -1, dtype=torch.int32)
        self._index[:, 0] = torch.arange(rows) * nodes
        self._index[:, 1] = self._index[:, 0] + 1
        self._lengths = torch.full((rows,), 2, dtype=torch.int32)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            opened = window.open_window(self._verify, self._batch, self._logits)  # type: ignore[arg-type]
            assert opened is not None
            opened.penalize(self._logits)
            opened.close(self._index, self._lengths)
            for req in self._batch.reqs:
                req.output_ids.extend((5, 6))


def launches(rows: int, asked: dict[str, float]) -> int:
    """Operations of a step after the first."""
    window._BOOKS.clear()
    steps = Penalized(rows, asked, 1000)
    steps.run(2)
    with Launches() as seen:
        steps.run(1)
    return seen.total
