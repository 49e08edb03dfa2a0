"""Command-line options that `bench`, `sweep` and `canary` have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from ..finite import RATIO, Finite
from ..models import ModelError
from . import cells, subject
from .cells import Cell, CellError
from .corpus import CorpusError
from .lossless import TIE_MARGIN

F = TypeVar("F", bound=Callable[..., Any])


class Numbers(click.ParamType[tuple[float, ...]]):
    """Comma-separated numbers."""

    def __init__(self, kind: type[int] | type[float]) -> None:
        self.kind, self.name = kind, "n,n,…"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return tuple(self.kind(word) for word in value.split(",") if word)
        except ValueError:
            self.fail(f"{value!r} is no list of numbers", param, ctx)


INTS, FLOATS = Numbers(int), Numbers(float)
CONTEXT = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "ignore_unknown_options": False,
}
_OPTIONS = (
    click.option("--pair", type=click.Choice(subject.PAIRS), help="A pair that is at hand."),
    click.option("--model", help="Target: folder or hub id; with --draft and --prompts."),
    click.option("--draft", help="Its EAGLE3 draft."),
    click.option("--prompts", type=click.Path(path_type=Path, exists=True, dir_okay=False),
                 help="Held-out text, JSON lines: text, messages or input_ids."),
    click.option("--dtype", default="bfloat16", show_default=True),
    click.option("--context", "contexts", type=INTS, default="256", show_default=True,
                 help="Prompt tokens, exact."),
    click.option("--concurrency", "concurrencies", type=INTS, default="1,4", show_default=True,
                 help="Requests at a time (closed loop); '' for none."),
    click.option("--rate", "rates", type=FLOATS, default="", help="Requests a second (open loop)."),
    click.option("--new-tokens", default=96, show_default=True, help="Output tokens, exact."),
    click.option("--requests", type=click.IntRange(1), help="A measurement  [default: 3 a slot]."),
    click.option("--rounds", default=3, show_default=True, type=click.IntRange(1),
                 help="Measurements of each, interleaved."),
    click.option("--together", default=1, show_default=True, type=click.IntRange(1),
                 help="Servers up at a time; 2 keep the baseline beside."),
    click.option("--seed", default=0, show_default=True, help="Chooses prompts and arrivals."),
    click.option("--stop-at-eos", is_flag=True, help="Answers may end before --new-tokens."),
    click.option("--tie-margin", default=TIE_MARGIN, show_default=True, type=RATIO,
                 help="Log-probability that rounding may move."),
    click.option("--seconds", default=0.0, type=Finite(0),
                 help="Stop after this time, keep what was measured."),
    click.option("--resume", is_flag=True, help="Go on with the run in --output."),
    click.option("--dry-run", is_flag=True, help="Print what would run and what it costs."),
    click.option("--json", "as_json", is_flag=True, help="Print figures as JSON."),
)  # fmt: skip


@dataclass(frozen=True)
class Common:
    """The values of these options."""

    pair: str | None
    model: str | None
    draft: str | None
    prompts: Path | None
    dtype: str
    contexts: tuple[int, ...]
    concurrencies: tuple[int, ...]
    rates: tuple[float, ...]
    new_tokens: int
    requests: int | None
    rounds: int
    together: int
    seed: int
    stop_at_eos: bool
    tie_margin: float
    seconds: float
    resume: bool
    dry_run: bool
    as_json: bool

    def cells(self) -> tuple[Cell, ...]:
        try:
            return cells.grid(
                self.contexts, self.concurrencies, self.rates, self.requests, self.new_tokens
            )
        except CellError as error:
            raise click.UsageError(str(error)) from error

    def subject(self, running: bool = False) -> subject.Subject:
        """The pair; of servers that run already (`running`) it has to be said."""
        if running and self.pair is None and self.model is None:
            raise click.UsageError(
                "say what the servers serve: --pair, or --model, --draft and --prompts"
            )
        try:
            return subject.subject(self.pair, self.model, self.draft, self.prompts)
        except (CorpusError, ModelError) as error:
            raise click.UsageError(str(error)) from error

    def settings(self) -> dict[str, Any]:
        """What a run that is resumed must have alike, besides its sides."""
        return {
            "cells": [cell.key for cell in self.cells()],
            "new_tokens": self.new_tokens,
            "requests": self.requests,
            "rounds": self.rounds,
            "together": self.together,
            "seed": self.seed,
            "stop_at_eos": self.stop_at_eos,
            "dtype": self.dtype,
            # A run from before there was this setting had the default.
            "tie_margin": None if self.tie_margin == TIE_MARGIN else self.tie_margin,
        }


def common(command: F) -> F:
    """The options, given to the command as one `Common` under the name `common`."""
    import functools

    @functools.wraps(command)
    def wrapped(**values: Any) -> Any:
        own = {name: values.pop(name) for name in Common.__dataclass_fields__}
        return command(common=Common(**own), **values)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]
