"""What a canary compares, from one text each: flags, an interpreter with flags, `none`, a URL."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from ..bench import mask, mode, subject
from ..bench.side import Side, checked_url

NO_SPECULATION = "none"


class SpecError(ValueError):
    """A text that names no server; the text says what one looks like."""


def side(name: str, text: str, common: mode.Settings) -> Side:
    """The side that `text` describes.

    `http://…`: a server that runs. Else words as on a command line: an interpreter (a file; another
    environment's `bin/python`) or not, `none` for no speculation or not, then flags for the server.

    Raises:
        SpecError: it is none of these.
    """
    if text.startswith(("http://", "https://")):
        try:
            return Side(name, url=checked_url(text))
        except ValueError as error:
            raise SpecError(f"{name}: {text!r}: {error}; give http://HOST:PORT") from error
    words = shlex.split(text)
    python = Path(words.pop(0)) if words and "/" in words[0] else None
    if python is not None and not python.is_file():
        raise SpecError(f"{name}: there is no interpreter {python}")
    kind = mode.STATIC
    if words and words[0] == NO_SPECULATION:
        kind, words = mode.OFF, words[1:]
    if words and not words[0].startswith("--"):
        raise SpecError(
            f"{name}: {words[0]!r} is no flag; give http://HOST:PORT, or [PYTHON] [none] [--flag …]"
        )
    launch = mode.launch(kind, replace(common, extra=(*common.extra, *words)))
    made = Side(name, launch, flags=mask.text(text))
    return subject.elsewhere(made, python) if python is not None else made
