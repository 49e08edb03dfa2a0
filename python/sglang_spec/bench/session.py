"""A run from its first line to its files: record, progress, what ends it early."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from .. import process
from ..server import ServerError, Spawn
from . import output
from .runfile import Recorder, Run
from .runner import OutOfTime, Plan, run
from .traffic import TrafficError


def measure(
    plan: Plan,
    header: Mapping[str, Any],
    folder: Path,
    resume: bool,
    name: str,
    spawn: Spawn = process.spawn,
    write: Callable[[Run, Path], list[Path]] = output.write,
) -> tuple[Run, int]:
    """Run `plan` into `folder`; the run, and the exit code that how it ended asks for.

    Codes: 0 got to its end (or to its time limit), 1 a server or the generator failed,
    130 interrupted, 143 terminated. The files are written in each case, marked partial.

    Raises:
        RunFileError: the folder has a run already, or one of other settings.
    """
    begin = Recorder.resume if resume else Recorder.begin
    record = begin(folder / output.RUN, header)
    code, why = 0, None
    try:
        with _progress(plan.measurements(), name) as (tell, advance):
            run(plan, record, tell, advance, spawn)
    except OutOfTime as error:
        why = str(error)
    except (ServerError, TrafficError, httpx.HTTPError) as error:
        code, why = 1, f"{type(error).__name__}: {error}"[:3000]
    except KeyboardInterrupt:
        code, why = 130, "interrupted"
    except SystemExit as leaving:
        code, why = int(leaving.code or 1), "terminated"
    record.finish(why)
    if why:
        say(name, f"partial: {why}")
    for path in write(record.run, folder):
        say(name, f"wrote {path}")
    return record.run, code


def say(name: str, text: str) -> None:
    print(f"{name}: {text}", file=sys.stderr)


@contextmanager
def _progress(total: int, name: str) -> Iterator[tuple[Any, Any]]:
    """`tell(text)` and `advance()`: a bar on a terminal, plain lines elsewhere; both on stderr."""
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(name, total=total)

        def tell(text: str) -> None:
            console.print(f"{name}: {text}", markup=False, soft_wrap=True)

        yield tell, lambda: bar.advance(task)
