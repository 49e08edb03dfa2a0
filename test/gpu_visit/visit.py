"""A visit from its first start to its summary: the schedule's starts become processes, and back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import bring, summary
from .machine import Machine
from .plan import BENCHMARK, Job, Plan
from .schedule import Schedule, hindrance
from .work import ROOT, Work, begin, end_all, result

# Of the whole time: to end what runs, and to pack what comes back.
CLOSING = 40.0
LOOK_EVERY = 0.3
TOLD_EVERY = 30.0
TIME_OVER, LIMIT_OVER = "the visit's time was over", "its limit was over"


@dataclass
class Visit:
    """`stopping` says why everything has to end now, or nothing."""

    plan: Plan
    machine: Machine
    out: Path
    seconds: float
    before: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bring_back: Path | None = None
    say: Callable[[str], None] = print
    stopping: Callable[[], str] = lambda: ""
    closing: float = CLOSING
    works: dict[str, Work] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.about = summary.about(self.machine.gpus)
        self.done = {name for name, tests in self.before.items() if "*" in tests}
        left = max(1.0, self.seconds - self.closing)
        self.schedule = Schedule.of(self.plan, self.machine, left, self.done)

    def run(self) -> dict[str, Any]:
        """Everything, by worth, until the time is over; gives the summary."""
        self.out.mkdir(parents=True, exist_ok=True)
        why = ""
        told = 0.0
        try:
            while not (why := self.stopping()):
                if self._step():
                    self.keep("running")
                    told = self._now
                if not self.schedule.running:
                    break
                if self._now - told > TOLD_EVERY:
                    self.keep("running")
                    told = self._now
                time.sleep(LOOK_EVERY)
        except BaseException as error:
            why = f"{type(error).__name__}: {error}"  # the disk is full, say: it must not read done
            raise
        finally:
            running = [work for work in self.works.values() if not work.looked_at()]
            end_all(running, why or TIME_OVER)
            content = self.keep("partial" if why else "done", why)
            if self.bring_back is not None:
                bring.logs(self.out, self.bring_back, ROOT / "build/logs")
        return content

    @property
    def _now(self) -> float:
        return time.monotonic() - self.began

    def _step(self) -> bool:
        """End what is over, start what fits; whether anything changed."""
        running = [self.works[name] for name in self.schedule.running]
        late = [work for work in running if not work.looked_at() and work.over]
        end_all(late, TIME_OVER if self._now >= self.schedule.seconds else LIMIT_OVER)
        ended = [work for work in running if work.looked_at()]
        for work in ended:
            self.schedule.ended(work.start.job.name)
            self.say(f"{result(work)['state']}: {work.start.job.name} after {work.took:.0f} s")
        starts = self.schedule.starts(self._now)
        for start in starts:
            done = self.before.get(start.job.name, ())
            own = self.machine.roomy and start.job.kind == BENCHMARK
            cores = self.machine.cores_of(start.gpus) if own else ()
            self.works[start.job.name] = begin(start, self.out, done, cores)
            where = ",".join(start.gpus)
            self.say(f"begun: {start.job.name}, at most {start.limit:.0f} s on GPU {where}")
        return bool(ended or starts)

    def keep(self, state: str, why: str = "") -> dict[str, Any]:
        """Write the summary as it is now, and what comes back."""
        content = {
            "state": state,
            "why": why,
            "seconds": self.seconds,
            "elapsed": round(self._now, 1),
            "about": self.about,
            "jobs": [self._entry(job) for job in self.plan.jobs],
        }
        summary.write(self.out, content)
        if self.bring_back is not None:
            bring.light(self.out, self.bring_back, content)
        return content

    def _entry(self, job: Job) -> dict[str, Any]:
        before = [test for test in self.before.get(job.name, ()) if test != "*"]
        if job.name in self.works:
            return {**result(self.works[job.name]), "before": before}
        why = hindrance(job, self.machine)
        state = "skipped" if why else "not reached"
        if job.name in self.done:
            state, why = "passed before", ""
        return {
            **{"name": job.name, "kind": job.kind, "goal": job.goal, "worth": job.worth},
            **{"state": state, "why": why, "gpus": [], "at": None, "seconds": 0.0},
            **{"limit": job.seconds, "status": None, "counts": {}, "tests": []},
            **{"results": [], "tail": [], "before": before},
        }


def resumed(file: Path) -> dict[str, tuple[str, ...]]:
    """What passed in the visit of that summary.

    Raises:
        SummaryError: it is no summary, or one of other code or other GPUs.
    """
    return summary.passed_before(summary.read(file), summary.about(()))


def printed(content: Mapping[str, Any], as_json: bool) -> str:
    return json.dumps(content, indent=1) if as_json else "\n".join(summary.table(content))
