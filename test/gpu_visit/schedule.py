"""Which job starts when, and on which GPUs. Knows no process: time comes in, starts come out.

First lanes, several at a time, until their share of the time is over; then benchmarks, in the
order of their worth; then the lanes that were not reached. `foreseen` plays it with every job
taking all of its time, which is what `--dry-run` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .machine import USABLE, Machine
from .plan import BENCHMARK, LANE, Benchmark, Job, Plan


@dataclass(frozen=True)
class Start:
    """A job that begins `at` seconds into the visit, with so many seconds until it is ended."""

    job: Job
    gpus: tuple[str, ...]
    at: float
    limit: float


def hindrance(job: Job, machine: Machine) -> str:
    """Why it can never run here, or nothing."""
    if job.needs > len(machine.gpus):
        return f"needs {job.needs} GPUs, this host has {len(machine.gpus)}"
    if job.gpu_gb > USABLE * machine.gpu_gb:
        return f"takes {job.gpu_gb:g} GB of a GPU, {USABLE * machine.gpu_gb:.0f} GB may be used"
    if job.servers > machine.servers:
        return f"has {job.servers} servers at once, this host carries {machine.servers}"
    return ""


@dataclass
class Schedule:
    """`seconds` are those until everything has to have ended, `lanes_until` those of the lanes."""

    machine: Machine
    seconds: float
    lanes_until: float
    waiting: list[Job]
    running: dict[str, Start] = field(default_factory=dict)

    @staticmethod
    def of(plan: Plan, machine: Machine, seconds: float, done: set[str]) -> Schedule:
        able = [job for job in plan.jobs if job.name not in done and not hindrance(job, machine)]
        jobs = [*_widest(able), *(job for job in able if job not in _widest(able))]
        share = plan.lanes_share if any(job.kind == BENCHMARK for job in jobs) else 1.0
        return Schedule(machine, seconds, share * seconds, jobs)

    def starts(self, now: float) -> list[Start]:
        """What begins now; it counts as running from here on."""
        begun = self._begin(now)
        if not begun and not self.running and now < self.lanes_until:
            self.lanes_until = now  # no lane fits into what is left of their share
            begun = self._begin(now)
        return begun

    def _begin(self, now: float) -> list[Start]:
        begun = []
        for kind in self._kinds(now):
            for job in [job for job in self.waiting if job.kind == kind]:
                end = self.lanes_until if kind == LANE and now < self.lanes_until else self.seconds
                limit = min(job.seconds, end - now)
                gpus = self._place(job)
                if gpus and limit >= min(job.shortest, job.seconds):
                    start = Start(job, gpus, now, limit)
                    self.waiting.remove(job)
                    self.running[job.name] = start
                    begun.append(start)
                elif kind == BENCHMARK and not gpus:
                    break  # a later one must not keep it from its turn for ever
        return begun

    def ended(self, name: str) -> None:
        self.running.pop(name)

    def _kinds(self, now: float) -> tuple[str, ...]:
        if now < self.lanes_until:
            still = [job for job in self.waiting if job.kind == LANE]
            lanes = [start for start in self.running.values() if start.job.kind == LANE]
            # Nothing but benchmarks is left to begin: they need not wait for the lanes' share.
            return (LANE,) if lanes or self._fits_in_time(still, now) else (BENCHMARK,)
        if any(start.job.kind == BENCHMARK for start in self.running.values()):
            return (BENCHMARK,)
        left = [job for job in self.waiting if job.kind == BENCHMARK]
        return (BENCHMARK,) if self._fits_in_time(left, now, self.seconds) else (LANE,)

    def _fits_in_time(self, jobs: list[Job], now: float, end: float | None = None) -> bool:
        until = self.lanes_until if end is None else end
        return any(until - now >= min(job.shortest, job.seconds) for job in jobs)

    def _place(self, job: Job) -> tuple[str, ...]:
        """GPUs for it, the emptiest first; none where it has to wait."""
        others = list(self.running.values())
        if not all(self._bear(job, start.job) for start in others):
            return ()
        if sum(s.job.servers for s in others) + job.servers > self.machine.servers:
            return ()
        taken = {
            gpu: sum(start.job.gpu_gb for start in others if gpu in start.gpus)
            for gpu in self.machine.gpus
        }
        closed = {gpu for start in others if start.job.alone for gpu in start.gpus}
        room = USABLE * self.machine.gpu_gb - job.gpu_gb
        free = [
            gpu
            for gpu in sorted(self.machine.gpus, key=lambda gpu: taken[gpu])
            if gpu not in closed and taken[gpu] <= room and not (job.alone and taken[gpu])
        ]
        return tuple(sorted(free[: job.needs])) if len(free) >= job.needs else ()

    def _bear(self, one: Job, other: Job) -> bool:
        """Whether both may run at once, on whichever GPUs. A lane starts servers all the time,
        which is never quiet."""
        if not (_is_quiet(one) or _is_quiet(other)):
            return True
        return self.machine.roomy and one.kind == other.kind == BENCHMARK


def _widest(jobs: list[Job]) -> list[Job]:
    """Of each family the one with the most GPUs: what fewer show comes after all else."""
    most = {family: max(j.needs for j in jobs if j.family == family) for family in _families(jobs)}
    return [job for job in jobs if job.needs == most.get(job.family, job.needs)]


def _families(jobs: list[Job]) -> set[str]:
    return {job.family for job in jobs if job.family}


def _is_quiet(job: Job) -> bool:
    return isinstance(job, Benchmark) and not job.beside


def foreseen(
    schedule: Schedule, takes: Callable[[Start], float] = lambda start: start.limit
) -> list[Start]:
    """All starts, in their order, if each job takes as long as `takes` says."""
    now, found, ends = 0.0, [], {}
    while True:
        for start in schedule.starts(now):
            found.append(start)
            ends[start.job.name] = now + takes(start)
        if not ends:
            return found
        now = min(ends.values())
        for name in [name for name, end in ends.items() if end <= now]:
            del ends[name]
            schedule.ended(name)


def table(starts: list[Start], skipped: Mapping[str, str]) -> list[str]:
    """One line a job."""
    lines = [
        f"{start.at:6.0f} s  {start.job.kind:9}  {start.job.name:26} at most {start.limit:4.0f} s  "
        f"GPU {','.join(start.gpus)}  {start.job.goal}"
        for start in starts
    ]
    return lines + [f"{'-':>8}  {name}: {why}" for name, why in skipped.items()]
