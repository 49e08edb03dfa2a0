"""`check`: everything that has to hold for a patch stack that people can live with."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import VendoringError, text_of
from .gitrepo import BASE_REF, GitRepo
from .interpreter import any_wheel
from .layout import Layout
from .patch_faults import (
    bad_results,
    incomplete_headers,
    large_patches,
    misplaced,
    missing_tests,
    stale_requirements,
    stale_results,
    trailing_space,
)
from .pin import Pin, read_pin
from .series import Patch, make_patch, read_patch_text, series_names, series_text
from .stack import applies_again, apply_exactly, apply_loosely, exported, patch_misfits, scratch
from .stamp import wanted
from .state import Condition, inspect
from .table import table_text
from .wheel_cache import resolve_any


@dataclass(frozen=True)
class Gate:
    """One gate's result: its faults, each naming what and where; `ran` is False if it could not be
    asked.
    """

    name: str
    faults: tuple[str, ...] = ()
    ran: bool = True

    @property
    def passed(self) -> bool:
        return self.ran and not self.faults


def check(layout: Layout, tag: str | None = None) -> list[Gate]:
    """Runs every gate. `tag` picks the pinned wheel; nothing is imported, so any will do."""
    pin = read_pin(layout.pin)
    gates = [Gate("series and files agree", tuple(_series_faults(layout)))]
    patches, unreadable = _read_all(layout)
    gates.append(Gate("patches can be read", tuple(unreadable)))
    gates.append(Gate("headers are complete", tuple(incomplete_headers(patches))))
    gates.append(Gate("every Test exists", tuple(missing_tests(layout, patches))))
    gates.append(Gate("kept results are good", tuple(bad_results(layout, patches))))
    gates.append(Gate("patches are small", tuple(large_patches(patches))))
    gates.append(Gate("no trailing space is added", tuple(trailing_space(patches))))
    gates.append(Gate("only upstream files are patched", tuple(misplaced(layout, patches))))
    _, file = resolve_any(pin, tag)
    gates.append(Gate("requirement lists are not stale", tuple(stale_requirements(pin, file))))
    if not all(gate.passed for gate in gates[:2]) or not _can_be_committed(patches):
        later = ("exact", "once", "export", "compile")
        return gates + [Gate(_NAMES[name], ran=False) for name in later]
    return gates + _scratch_gates(layout, pin, file, patches)


def warnings(layout: Layout) -> list[str]:
    """What a person should see to and no gate refuses."""
    patches, _ = _read_all(layout)
    return list(stale_results(layout, patches))


def _can_be_committed(patches: tuple[Patch, ...]) -> bool:
    """Do all headers have what a commit is made of? The gate on headers says what they lack."""
    try:
        return all(
            patch.header.date and patch.header.author_parts and patch.header.slug
            for patch in patches
        )
    except VendoringError:
        return False


_NAMES = {
    "exact": "patches apply with no fuzz and no offset",
    "once": "no patch applies twice",
    "export": "export would change nothing",
    "compile": "patched files compile",
}


def _scratch_gates(layout: Layout, pin: Pin, file: Path, patches: tuple[Patch, ...]) -> list[Gate]:
    found: dict[str, list[str]] = {name: [] for name in _NAMES}
    asked = dict.fromkeys(_NAMES, True)
    with scratch(pin, file, patches) as repo:
        for patch in patches:
            found["exact"] += _exact_faults(repo, patch)
            if not found["exact"]:
                apply_exactly(repo, patch)
            elif not _apply_anyhow(repo, patch):
                continue
            if applies_again(repo, patch):
                found["once"].append(f"{patch.slug} applies a second time")
        asked["export"] = not found["exact"]
        if asked["export"]:
            found["export"] += _export_faults(layout, patches, exported(repo, BASE_REF))
        found["export"] += _tree_faults(layout, pin, patches)
        found["compile"] += _compile_faults(repo.work_tree, patches)
    return [
        Gate(_NAMES[name], tuple(faults), asked[name] or bool(faults))
        for name, faults in found.items()
    ]


def _series_faults(layout: Layout) -> Iterator[str]:
    if not layout.series.is_file():
        yield "patches/series is missing"
        return
    try:
        names = series_names(text_of(layout.series))
    except VendoringError as fault:
        yield " ".join(str(fault).split())
        return
    files = {path.stem for path in layout.patches.glob("*.patch")}
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"patches/series names {name} twice"
    for name in sorted(set(names) - files):
        yield f"patches/series names {name}, but patches/{name}.patch does not exist"
    for name in sorted(files - set(names)):
        yield f"patches/{name}.patch exists, but patches/series does not name it"


def _read_all(layout: Layout) -> tuple[tuple[Patch, ...], list[str]]:
    """Every patch that can be read, and why the others cannot."""
    try:
        names = series_names(text_of(layout.series))
    except (FileNotFoundError, VendoringError):  # a fault of the series, told by its own gate
        return (), []
    patches: list[Patch] = []
    faults: list[str] = []
    for name in dict.fromkeys(names):
        try:
            patches.append(make_patch(name, read_patch_text(layout.patches / f"{name}.patch")))
        except VendoringError as fault:
            faults.append(" ".join(str(fault).split()))
    return tuple(patches), faults


def _exact_faults(repo: GitRepo, patch: Patch) -> list[str]:
    faults = []
    for misfit in patch_misfits(patch, repo.work_tree):
        faults.append(f"{patch.slug}: {misfit.path}, hunk {misfit.hunk}, {misfit.detail}")
    return faults


def _apply_anyhow(repo: GitRepo, patch: Patch) -> bool:
    """Goes on after a fault, so that one run names all of them."""
    try:
        apply_loosely(repo, patch)
    except VendoringError:
        return False
    return True


def _export_faults(
    layout: Layout, patches: tuple[Patch, ...], again: tuple[Patch, ...]
) -> Iterator[str]:
    for patch, other in zip(patches, again, strict=True):
        if patch.text != other.text or patch.slug != other.slug:
            yield f"patches/{patch.slug}.patch"
    series = text_of(layout.series)
    if series != series_text(series, [patch.slug for patch in patches]):
        yield "patches/series"
    table = text_of(layout.table) if layout.table.is_file() else ""
    if table != table_text(patches):
        yield "patches/README.md"


def _tree_faults(layout: Layout, pin: Pin, patches: tuple[Patch, ...]) -> Iterator[str]:
    """Work in the tree that `patches/` lacks; a checkout without a tree has none."""
    state = inspect(layout, wanted(pin, any_wheel(pin), patches))
    if state.condition is Condition.EDITED:
        for name in (*state.edits, *(f"commit: {subject}" for subject in state.unexported)):
            yield f"not exported from the tree: {name}"


def _compile_faults(tree: Path, patches: tuple[Patch, ...]) -> Iterator[str]:
    for name in sorted({path for patch in patches for path in patch.paths}):
        path = tree / name
        if path.is_file():
            fault = _compile_fault(path)
            if fault:
                yield f"{name}: {fault}"


def _compile_fault(path: Path) -> str:
    data = path.read_bytes()
    try:
        if path.suffix == ".py":
            compile(data, str(path), "exec", dont_inherit=True)
        elif path.suffix == ".json":
            json.loads(data)
        elif path.suffix == ".toml":
            tomllib.loads(data.decode("utf-8"))
    except (SyntaxError, ValueError) as fault:
        return str(fault)
    return ""


def gates_data(gates: list[Gate]) -> list[dict[str, Any]]:
    return [
        {"gate": gate.name, "passed": gate.passed, "ran": gate.ran, "faults": list(gate.faults)}
        for gate in gates
    ]


def gates_text(gates: list[Gate]) -> str:
    lines = []
    for gate in gates:
        word = "ok  " if gate.passed else "FAIL" if gate.ran else "skip"
        lines.append(f"{word} {gate.name}")
        lines += [f"     {fault}" for fault in gate.faults]
    return "\n".join(lines)
