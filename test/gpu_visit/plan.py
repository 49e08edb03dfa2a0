"""What a visit runs: the lanes of tests and the benchmarks of a TOML file, each checked by name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NoReturn

LANE, BENCHMARK = "lane", "benchmark"
PLACES = ("out", "seconds", "gpus")
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_PLACE = re.compile(r"\{([^{}]*)\}")


class PlanError(ValueError):
    """A plan that cannot be run; the text names file, key, value and what to write instead."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What lanes and benchmarks have in common.

    Attributes:
        goal: a sentence: what is known once this has run.
        worth: the higher, the earlier.
        needs: GPUs, of one host. A list of numbers in the file is a job for each of them, which has
            the number in its name.
        seconds: its limit; then it is ended, and what it has written counts.
        least: seconds below which it is not begun at the end of a visit; 0: half of `seconds`.
        gpu_gb: memory that it takes of each of its GPUs at most.
        servers: how many of its servers are up at once, which is what host memory is reckoned by.
        alone: nobody else has its GPUs.
        family: of a job that is one of several, by the number of GPUs; not written in a file.
    """

    name: str
    goal: str
    worth: int
    needs: int = 1
    seconds: int
    least: int = 0
    gpu_gb: float = 20.0
    servers: int = 2
    alone: bool = False
    family: str = ""

    @property
    def kind(self) -> str:
        return LANE if isinstance(self, Lane) else BENCHMARK

    @property
    def shortest(self) -> float:
        return self.least or self.seconds / 2


@dataclass(frozen=True, kw_only=True)
class Lane(Job):
    """One pytest process: `tests` are node ids, `select` a pattern that their ids must hold, in
    which {gpus} stands for their number."""

    tests: tuple[str, ...]
    select: str = ""

    @property
    def pattern(self) -> str:
        return self.select.replace("{gpus}", str(self.needs))


@dataclass(frozen=True, kw_only=True)
class Benchmark(Job):
    """One program. `argv` begins with `python`; {out}, {seconds} and {gpus} stand for its folder,
    the seconds that it has, and the number of its GPUs. `results` are files that it writes there.

    It has its GPUs for itself; with `beside` others may have the other GPUs meanwhile, else only
    other benchmarks, and only where each GPU has enough cores of its own (`machine.roomy`).
    """

    argv: tuple[str, ...]
    results: tuple[str, ...] = ()
    beside: bool = False
    alone: bool = True


@dataclass(frozen=True)
class Plan:
    """All jobs, by worth; `seconds` is the time of a visit where none is named, `lanes_share` the
    part of it after which lanes make room for the benchmarks."""

    jobs: tuple[Job, ...]
    seconds: int = 1200
    lanes_share: float = 0.5

    def chosen(self, only: tuple[str, ...]) -> Plan:
        """Only the jobs of these names.

        Raises:
            PlanError: there is none of that name.
        """
        known = {job.name for job in self.jobs}
        if unknown := [name for name in only if name not in known]:
            raise PlanError(f"no lane or benchmark {unknown[0]!r}; there are {sorted(known)}")
        jobs = tuple(job for job in self.jobs if not only or job.name in only)
        return Plan(jobs, self.seconds, self.lanes_share)


def read(file: Path) -> Plan:
    """The plan in `file`.

    Raises:
        PlanError: it is no TOML, or a key is unknown, missing or of another kind.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PlanError(f"{file}: {error}; name a plan in TOML with --plan") from None
    return _Reader(str(file)).plan(content)


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file

    def plan(self, content: Mapping[str, Any]) -> Plan:
        self._known("", content, ("visit", LANE, BENCHMARK))
        about = content.get("visit", {})
        self._table("visit", about)
        self._known("visit", about, ("seconds", "lanes_share"))
        given = {key: self._number(f"visit.{key}", value) for key, value in about.items()}
        if not 0 <= (share := given.get("lanes_share", 0.5)) <= 1:
            self._fail("visit.lanes_share", share, "write a share from 0 to 1")
        jobs: list[Job] = []
        for kind, made in ((LANE, Lane), (BENCHMARK, Benchmark)):
            entries = content.get(kind, [])
            if not isinstance(entries, list):
                self._fail(kind, entries, f"write [[{kind}]], once for each")
            for number, one in enumerate(entries):
                jobs += self._jobs(kind, made, number, one)
        if not jobs:
            self._fail(LANE, [], f"write a [[{LANE}]] or a [[{BENCHMARK}]]")
        names = [job.name for job in jobs]
        if twice := [name for name in names if names.count(name) > 1]:
            self._fail("name", twice[0], "give each lane and benchmark a name of its own")
        ordered = sorted(jobs, key=lambda job: -job.worth)
        return Plan(tuple(ordered), int(given.get("seconds", 1200)), share)

    def _jobs(
        self, kind: str, made: type[Lane] | type[Benchmark], number: int, entry: Any
    ) -> list[Job]:
        """One, or one for each number of GPUs."""
        if not isinstance(entry, dict) or not isinstance(entry.get("needs"), list):
            return [self._job(kind, made, number, entry)]
        if not entry["needs"]:
            self._fail(f"{kind}[{entry.get('name', number)}].needs", [], "write a number of GPUs")
        each = [{**entry, "needs": gpus} for gpus in entry["needs"]]
        found = [self._job(kind, made, number, one) for one in each]
        return [replace(job, name=f"{job.name}-{job.needs}", family=job.name) for job in found]

    def _job(self, kind: str, made: type[Lane] | type[Benchmark], number: int, entry: Any) -> Job:
        where = f"{kind}[{number}]"
        self._table(where, entry)
        if isinstance(entry.get("name"), str):
            where = f"{kind}[{entry['name']}]"
        known = {field.name: str(field.type) for field in fields(made) if field.name != "family"}
        self._known(where, entry, tuple(known))
        for key in ("name", "goal", "worth", "seconds", "tests" if kind == LANE else "argv"):
            if key not in entry:
                self._fail(f"{where}.{key}", None, "it has to be given")
        values = {
            key: self._value(f"{where}.{key}", known[key], value) for key, value in entry.items()
        }
        if not _NAME.fullmatch(values["name"]):
            self._fail(f"{where}.name", values["name"], "write a-z, 0-9, dots and hyphens")
        for key in ("needs", "seconds", "servers", "gpu_gb"):
            if values.get(key, 1) <= 0:
                self._fail(f"{where}.{key}", values[key], "write a number above 0")
        self._words(where, kind, values)
        return made(**values)

    def _words(self, where: str, kind: str, values: Mapping[str, Any]) -> None:
        words = values["tests" if kind == LANE else "argv"]
        if not words:
            self._fail(f"{where}.{'tests' if kind == LANE else 'argv'}", [], "name at least one")
        if kind == BENCHMARK and words[0] != "python":
            self._fail(f"{where}.argv", words[0], 'begin with "python", which is this interpreter')
        for word in words if kind == BENCHMARK else ():
            for place in _PLACE.findall(word):
                if place not in PLACES:
                    self._fail(f"{where}.argv", word, f"known are {', '.join(PLACES)} in braces")
        for name in values.get("results", ()):
            if Path(name).is_absolute() or ".." in Path(name).parts:
                self._fail(f"{where}.results", name, "name a file in {out}, without {out} itself")
        try:
            re.compile(values.get("select", ""))
        except re.error as error:
            self._fail(f"{where}.select", values["select"], f"write a regular expression ({error})")

    def _value(self, key: str, kind: str, value: Any) -> Any:
        if kind.startswith("tuple"):
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                self._fail(key, value, "write a list of strings")
            return tuple(value)
        if kind == "float":
            return float(self._number(key, value))
        wanted = {"str": str, "int": int, "bool": bool}[kind]
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            self._fail(key, value, f"write a {wanted.__name__}")
        return value

    def _number(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            self._fail(key, value, "write a number of 0 or more")
        return value

    def _table(self, key: str, value: Any) -> None:
        if not isinstance(value, dict):
            self._fail(key, value, "write a table")

    def _known(self, where: str, entry: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in entry:
            if key not in known:
                self._fail(
                    f"{where}.{key}".lstrip("."),
                    entry[key],
                    f"unknown; known are {', '.join(known)}",
                )

    def _fail(self, key: str, value: Any, remedy: str) -> NoReturn:
        raise PlanError(f"{self._file}: {key} = {value!r}: {remedy}")
