"""The watch at work in a rank: what `cycle` and the scheduler tell it, what it tells them.

Called by: `run_scheduler_process` (`start`), `Scheduler.on_idle` (`idle`), `cycle` (the methods of
its `Watcher`), and in `managers/scheduler_components` by `batch_result_processor.py` (`observe`),
`internal_state.py` (`info`) and `metrics_reporter.py` (`log_part`), patch `speculative-watch`.
Before the rank is ready, and without EAGLE, every call does nothing: the self-test is not counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from sglang.srt.runtime_context import get_parallel, get_spec

from .. import construction, cycle, record
from . import tallies
from .alarm import Alarm, State, Verdict
from .counts import Counts, Step
from .laps import Laps
from .metrics import Metrics
from .phases import DRAFT, DRAFT_EXTEND, PREPARE, Cycle, Phases
from .settings import Level, level_of, timed_every

logger = logging.getLogger(__name__)

_watch: Watch | None = None

# Seconds that Prometheus may be behind while batches are decoded; afterwards it is not.
LATE = 0.5

# The phase that begins with a stage of `stages.CYCLE`; verify prepares its forward first.
_PHASES = {"draft": DRAFT, "verify": PREPARE, "draft_extend": DRAFT_EXTEND}


def start(scheduler: Any, self_test: Mapping[str, Any] | None) -> None:
    """Watch this rank from now on.

    Args:
        scheduler: built, its self-test over.
        self_test: what that found (`self_test.result.Result.as_dict`), None without speculation.
    """
    global _watch
    if scheduler.draft_worker is None:
        return
    from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

    level = level_of(get_spec().speculative_watch, scheduler.device)
    worker = scheduler.draft_worker
    # Of a pipeline each stage would see its own part of a cycle.
    if not level or not isinstance(worker, EAGLEWorkerV2) or get_parallel().pp_size > 1:
        return
    _watch = Watch(scheduler, worker, level, self_test or {})
    cycle.watch_with(_watch)


def observe(batch: Any, result: Any) -> None:
    """The accept lengths of a decode batch are on the host.

    Args:
        batch: the `ScheduleBatch` as it was launched; requests that have ended since have a row
            under overlap scheduling, which nobody is sent and which is not counted.
        result: its `GenerationBatchResult`, with `num_correct_drafts_per_req_cpu`.
    """
    if _watch is not None:
        _watch.observe(batch, result)


def idle() -> None:
    """The scheduler has nothing to do; it asks again and again."""
    if _watch is not None:
        _watch.publish()


def info() -> dict[str, Any] | None:
    """For `/server_info`; None where nothing is watched."""
    return None if _watch is None else _watch.info()


def log_part() -> str:
    """For the decode line of the log: `verify 95.2 % of 11.8 ms, …, `; empty without times."""
    if _watch is None or _watch.laps is None:
        return ""
    _watch.laps.settle()
    line = _watch.phases.take_line()
    return f"{line}, " if line else ""


def _group() -> int:
    """A number that ranks have in common if they decode the same batches."""
    parallel = get_parallel()
    return int(1 + parallel.attn_dp_rank + 1024 * (parallel.dp_rank or 0))


def _speaks_of_draft(params: Any) -> bool:
    """Whether it would be odd that nothing is accepted of a request, so that the alarm judges.

    Above a temperature of 1 the target's distribution is flattened, and what is drawn from it is
    seldom the likeliest token, which a draft that is well proposes.
    """
    return bool(params.top_k == 1 or params.temperature <= 1)


class Watch:
    """All that one rank watches. Ranks that report nothing only leave their sums for rank 0."""

    def __init__(
        self, scheduler: Any, worker: Any, level: Level, self_test: Mapping[str, Any]
    ) -> None:
        reporter = scheduler.metrics_reporter
        self._reports = reporter.is_stats_logging_rank or reporter.current_scheduler_metrics_enabled
        self._worker = worker
        self._level = level
        auto = get_spec().speculative_disable_batch_threshold == "auto"
        self.counts = Counts("cost" if auto else "batch_size")
        self.phases = Phases()
        self.laps: Laps | None = None
        if level is Level.PHASES and self._reports:
            from ..threshold.stopwatch import Stopwatch

            every = timed_every(scheduler.device)
            self.laps = Laps(Stopwatch(scheduler.device), self._passed, every)
        several = worker.adaptive_controller is not None
        proven = self_test.get("state") == "proven"
        self.alarm = Alarm(
            "" if proven else self_test.get("reason") or "no self-test was run",
            None if several else self_test.get("accept_length"),
        )
        self._page = construction.here()
        self._board = record.from_environment() if self._page is not None else None
        self._tally = None
        if self._page is not None:
            self._tally = tallies.Tally(self._page, _group())
        self._metrics: Metrics | None = None
        self._behind = False
        self._published = 0.0
        if reporter.current_scheduler_metrics_enabled:
            self._metrics = Metrics(scheduler.metrics_collector.labels)
            self._metrics.verdict(self.alarm.verdict)
        self._said = self.alarm.verdict.state

    def launched(self, batch: Any) -> None:
        self.counts.launch(time.monotonic())
        if self.laps is not None and not self.laps.passes_over():
            self.laps.begin([req.rid for req in batch.reqs])

    def entered(self, stage: str) -> None:
        if self.laps is None:
            return
        if stage in _PHASES:
            self.laps.mark(_PHASES[stage])
        else:
            self.laps.interrupt()

    def begin(self, phase: str) -> None:
        if self.laps is not None:
            self.laps.mark(phase)

    def ended(self) -> None:
        if self.laps is not None:
            self.laps.end()

    def observe(self, batch: Any, result: Any) -> None:
        counts: list[int] = []
        told: list[int] = []
        rids: list[str] = []
        correct = result.num_correct_drafts_per_req_cpu
        for count, req in zip(correct, batch.reqs, strict=False):  # a padded batch has more
            if req.is_retracted or req.finished():
                continue
            counts.append(count)
            if _speaks_of_draft(req.sampling_params):
                told.append(count)
                rids.append(req.rid)
        plain = result.is_plain_step
        summed = self._tally is not None and not plain and self._tally.add(counts)
        if not self._reports:
            return
        now = time.monotonic()
        steps = 0 if plain else self._steps(result)
        self.counts.observe(Step(steps, counts, plain), now)
        judged = self.alarm.observe(steps, told, rids, now)
        if summed and self._board is not None and self._page is not None:
            self.alarm.ranks(tallies.unequal(self._board.ranks(), self._page.group))
            judged = True
        if judged:
            self._tell(self.alarm.verdict)
        self._behind = True
        if now - self._published >= LATE:
            self.publish()

    def publish(self) -> None:
        """Read the times that are there, and bring Prometheus up to date."""
        if not self._behind:
            return
        self._behind = False
        self._published = time.monotonic()
        if self.laps is not None:
            self.laps.settle()
        if self._metrics is not None:
            self._metrics.counted(self.counts)

    def info(self) -> dict[str, Any]:
        self.publish()
        if self.laps is not None:
            self.laps.settle()
        verdict = self.alarm.verdict
        return {
            "watch": self._level.name.lower(),
            "phases_of_every": None if self.laps is None else self.laps.every,
            "state": str(verdict.state),
            "reason": verdict.reason,
            "acceptance": self.counts.details(),
            "phases": self.phases.details(),
        }

    def _steps(self, result: Any) -> int:
        """Draft steps of the cycle; of a chain they follow from its width, a tree keeps its own."""
        if self._worker.topk == 1:
            return int(result.speculative_num_draft_tokens) - 1
        return int(self._worker.speculative_num_steps)

    def _passed(self, cycle: Cycle) -> None:
        self.phases.add(cycle)
        if self._metrics is not None:
            self._metrics.cycle(cycle)

    def _tell(self, verdict: Verdict) -> None:
        degraded = verdict.state is State.DEGRADED
        if self._page is not None and (degraded or self._page.alarm):
            self._page.raise_alarm(verdict.line if degraded else "")
        if verdict.state is self._said:
            return
        self._said = verdict.state
        log = logger.warning if degraded else logger.info
        log("Speculation is %s", verdict.line)
        if self._metrics is not None:
            self._metrics.verdict(verdict)
