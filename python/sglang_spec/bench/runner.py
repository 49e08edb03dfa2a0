"""Starts the sides of a run group by group and measures them in turn.

The baseline is up beside the others where two servers fit (`together`), and each round measures
every side of the group once, in an order that rotates: what drifts with time meets all alike.
With one server at a time the baseline is measured first and once more last, to show the drift.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from .. import process
from ..server import Server, ServerError, Spawn, stop_all
from . import lossless, mode, side
from .cells import Cell
from .corpus import Corpus
from .measure import measurement
from .runfile import Recorder
from .side import Facts, Side
from .traffic import Generator

READY_SECONDS = 1800.0
WARM_TOKENS = 8


class OutOfTime(RuntimeError):
    """The time given to the run is over; what was measured is kept."""


@dataclass(frozen=True)
class Plan:
    """`sides` begin with the baseline. `go_on`: a side that does not start ends only itself."""

    sides: tuple[Side, ...]
    cells: tuple[Cell, ...]
    rounds: int
    together: int
    corpus: Corpus
    logs: Path
    seed: int = 0
    stop_at_eos: bool = False
    seconds: float = 0.0
    go_on: bool = False
    tie_margin: float = lossless.TIE_MARGIN

    @property
    def baseline(self) -> Side:
        return self.sides[0]

    def groups(self) -> list[tuple[Side, ...]]:
        """Sides that are up at the same time, the baseline first where it is among them."""
        base, *others = self.sides
        running = [one for one in others if one.url is not None]
        started = [one for one in others if one.launch is not None]
        room = self.together - (1 if base.launch is not None else 0)
        if room < 1 and started:
            alone = [(one,) for one in started]
            return [(base, *running), *alone, (base,)]
        chunks = [tuple(started[at : at + room]) for at in range(0, len(started), max(room, 1))]
        first = (base, *running, *(chunks[0] if chunks else ()))
        return [first, *((base, *chunk) for chunk in chunks[1:])]

    def measurements(self) -> int:
        return sum(map(len, self.groups())) * len(self.cells) * self.rounds

    def cost(self) -> dict[str, int]:
        """What running all of it takes, in counts."""
        per_side = self.rounds * sum(cell.requests for cell in self.cells)
        tokens = self.rounds * sum(cell.requests * cell.new_tokens for cell in self.cells)
        visits = sum(map(len, self.groups()))
        return {
            "servers_started": sum(len(self._to_start(n)) for n in range(len(self.groups()))),
            "measurements": self.measurements(),
            "requests": visits * per_side,
            "output_tokens": visits * tokens,
        }

    def _to_start(self, number: int) -> list[Side]:
        """Launched sides of a group, without a baseline that is still up from the one before."""
        groups = self.groups()
        kept = number > 0 and self.baseline in groups[number - 1] and self.together > 1
        return [
            one
            for one in groups[number]
            if one.launch is not None and not (kept and one == self.baseline)
        ]


@dataclass(frozen=True)
class Up:
    """A side that answers."""

    side: Side
    url: str
    facts: Facts


Tell = Callable[[str], None]


def run(
    plan: Plan,
    record: Recorder,
    tell: Tell,
    advance: Callable[[], None],
    spawn: Spawn = process.spawn,
) -> None:
    """Measure all that `record` does not hold yet; `advance` is called for each measurement.

    Raises:
        OutOfTime, ServerError, TrafficError, httpx.HTTPError: what came in the way; what was
            measured until then is in the record.
    """
    deadline = time.monotonic() + plan.seconds if plan.seconds else None
    with ExitStack() as whole:
        generator = whole.enter_context(Generator(plan.logs / "generator.log"))
        kept: dict[str, Up] = {}
        for number, group in enumerate(plan.groups()):
            todo = [one for one in group if _left(plan, record, one, number)]
            if _pointless(plan, record, group):
                todo = []
            for _ in range((len(group) - len(todo)) * len(plan.cells) * plan.rounds):
                advance()
            if not todo:
                continue
            with ExitStack() as stack:
                up = _start(plan, record, tell, todo, number, (whole, stack), kept, spawn)
                for cell in plan.cells if not _pointless(plan, record, group) else ():
                    _measure(plan, record, tell, advance, generator, up, cell, number, deadline)


def _pointless(plan: Plan, record: Recorder, group: tuple[Side, ...]) -> bool:
    """Whether the baseline would be measured beside sides that all failed."""
    others = [one.name for one in group if one != plan.baseline]
    return bool(others) and all(name in record.run.failed for name in others)


def _left(plan: Plan, record: Recorder, one: Side, group: int) -> bool:
    return one.name not in record.run.failed and any(
        (one.name, cell.key, group, number) not in record.run.measurements
        for cell in plan.cells
        for number in range(plan.rounds)
    )


def _start(
    plan: Plan,
    record: Recorder,
    tell: Tell,
    todo: list[Side],
    group: int,
    stacks: tuple[ExitStack, ExitStack],
    kept: dict[str, Up],
    spawn: Spawn,
) -> list[Up]:
    """The sides of a group, ready, in their order; the baseline stays up if others fit beside.

    They start at the same time, after those that measure themselves while they start.
    """
    begun: dict[str, float] = {}
    servers: dict[str, Server] = {}
    ending: list[Server] = []
    alone = {
        one.name for one in todo if one.launch is not None and mode.measures_itself(one.launch)
    }
    for one in sorted(todo, key=lambda one: one.name not in alone):
        if one.launch is not None and one.name not in kept:
            tell(f"starting {one.name} …")
            begun[one.name] = time.monotonic()
            stays = one == plan.baseline and plan.together > 1
            log = plan.logs / f"{one.name.replace(' ', '-').replace(',', '-')}.log"
            server = Server(one.launch, log, spawn=spawn)
            servers[one.name] = stacks[0 if stays else 1].enter_context(server)
            if not stays:
                ending.append(server)
            if one.name in alone:
                with suppress(ServerError):  # which comes again below
                    server.wait_ready(READY_SECONDS)
    stacks[1].callback(stop_all, ending)
    up = []
    for one in todo:
        if one.name in kept:
            up.append(kept[one.name])
            continue
        try:
            if one.name in servers:
                servers[one.name].wait_ready(READY_SECONDS)
        except ServerError as error:
            if not plan.go_on or one == plan.baseline:
                raise
            why = str(error)
            record.add("failed", side=one.name, why=why[-1500:])
            tell(f"{one.name} failed: {why.splitlines()[-1][:200]}")
            continue
        url = (one.url or servers[one.name].url).rstrip("/")
        found = Up(one, url, side.ask(url))
        if one == plan.baseline and plan.together > 1:
            kept[one.name] = found
        now = time.monotonic()
        seconds = round(now - begun.get(one.name, now), 1)
        record.add(
            "side", side=one.name, flags=one.flags, group=group, ready_s=seconds,
            settings=one.settings(), facts=asdict(found.facts),
        )  # fmt: skip
        up.append(found)
    return up


def _measure(
    plan: Plan,
    record: Recorder,
    tell: Tell,
    advance: Callable[[], None],
    generator: Generator,
    up: list[Up],
    cell: Cell,
    group: int,
    deadline: float | None,
) -> None:
    warm: set[str] = set()
    for number in range(plan.rounds):
        turn = number % max(len(up), 1)
        for one in up[turn:] + up[:turn]:
            if (one.side.name, cell.key, group, number) in record.run.measurements:
                advance()
                continue
            if deadline is not None and time.monotonic() > deadline:
                raise OutOfTime("its time is over")
            place = {"side": one.side.name, "cell": cell.key, "group": group, "round": number}
            refused = side.refusals(one.facts, cell.kv_tokens, cell.concurrency or 1)
            if refused:
                record.add("measurement", **place, invalid=refused)
            else:
                if one.side.name not in warm:
                    _warm(plan, generator, one, cell)
                    warm.add(one.side.name)
                found = _once(plan, record, generator, one, cell)
                record.add("measurement", **place, **found)
                tell(_said(one.side.name, cell, number, found))
            advance()


def _warm(plan: Plan, generator: Generator, one: Up, cell: Cell) -> None:
    """The same load with other prompts and few tokens; not measured."""
    count = min(cell.requests, cell.concurrency or 2)
    few = Cell(cell.context, count, None, count, WARM_TOKENS)
    asked = plan.corpus.prompts(count, cell.context, plan.seed + 1_000_003)
    generator.send(one.url, few, asked)


def _once(
    plan: Plan, record: Recorder, generator: Generator, one: Up, cell: Cell
) -> dict[str, object]:
    asked = plan.corpus.prompts(cell.requests, cell.context, plan.seed)
    reply = generator.send(one.url, cell, asked, plan.seed, plan.stop_at_eos)
    reference = record.run.answers.get(cell.key, {})
    if not reference and one.side == plan.baseline:
        told = {n: list(a.tokens) for n, a in enumerate(reply.answers) if not a.error}
        record.add("answers", cell=cell.key, tokens=told)
        reference = told
    explain = lossless.by_prefill(one.url, plan.tie_margin)
    equality = lossless.compare(asked, reply.answers, reference, explain)
    speculates = one.side.launch is not None and one.side.launch.speculation is not None
    return measurement(
        cell, one.facts, reply, equality, speculates or one.facts.algorithm is not None
    )


def _said(name: str, cell: Cell, number: int, found: dict[str, object]) -> str:
    text = f"{cell.key}, round {number + 1}: {name} {found.get('output_throughput')} tok/s"
    if found.get("accept_length"):
        text += f", accept length {found['accept_length']}"
    return text + (f", INVALID: {found['invalid']}" if found["invalid"] else "")
