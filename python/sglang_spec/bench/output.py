"""The files of a run beside its raw lines: figures as JSON, a summary, a picture."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import curves, markdown
from .runfile import Run
from .table import table

RUN = "run.jsonl"
# What the files of a run are written from, by the keys of its first line.
NEEDED = ("date", "host", "pin", "checkpoints", "argv", "settings.corpus", "settings.sides",
          "settings.cells")  # fmt: skip


def provenance(run: Run) -> dict[str, Any]:
    """What every file of a run says of where it comes from."""
    header = run.header
    return {
        "date": header["date"],
        "partial": run.partial,
        **{name: header[name] for name in ("host", "pin", "checkpoints", "argv")},
        "corpus": header["settings"]["corpus"],
        "sides": {
            name: {**one["settings"], "version": one["facts"]["provenance"].get("version"),
                   "patch_set": one["facts"]["provenance"].get("patch_set"),
                   "kv_tokens": one["facts"]["kv_tokens"]}
            for name, one in run.sides.items()
        },
    }  # fmt: skip


def figures(run: Run) -> dict[str, Any]:
    """Everything as plain data: what `--json` prints and `figures.json` holds."""
    return {
        "partial": run.partial,
        "baseline": run.header["settings"]["sides"][0],
        "cells": table(run),
        "failed": run.failed,
        "provenance": provenance(run),
    }


def write(run: Run, folder: Path) -> list[Path]:
    """`figures.json`, `summary.md`, `curves.png` and `.svg` in `folder`; what was written."""
    made = figures(run)
    files = [folder / "figures.json", folder / "summary.md"]
    replace(files[0], json.dumps(made, indent=1) + "\n")
    replace(files[1], markdown.summary(made))
    for suffix in ("png", "svg"):
        target = folder / f"curves.{suffix}"
        if curves.draw(made, target):
            files.append(target)
    return files


# Of absolute paths, and not of a URL's.
_FOLDERS = re.compile(r"(?<![\w./:])/(?:[\w.+@-]+/)+")


def replace(path: Path, text: str) -> None:
    """The whole file or the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    beside.write_text(text)
    os.replace(beside, path)


def by_mode(made: Mapping[str, Any]) -> dict[str, Any]:
    """side -> concurrency -> context -> figures, and the provenance: a file for the record.

    It is to be shown, so of a path it says the last part alone.
    """
    modes: dict[str, Any] = {}
    for cell, sides in made["cells"].items():
        context, found, concurrency = cell.partition("x")
        if not found:
            continue
        for name, one in sides.items():
            modes.setdefault(name, {}).setdefault(concurrency, {})[context] = {
                key: one[key]
                for key in ("tok_s", "accept_length", "speedup", "cycles_per_s", "valid", "invalid")
            }
    provenance = json.loads(_FOLDERS.sub("…/", json.dumps(made["provenance"])))
    return {"modes": modes, "partial": made["partial"], "provenance": provenance}
