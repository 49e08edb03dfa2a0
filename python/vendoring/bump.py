"""`bump VERSION`: would the stack and our modules fit another upstream release? Changes nothing."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .errors import VendoringError
from .gitrepo import GitRepo
from .layout import Layout
from .pin import Pin, read_pin
from .retire import is_due, parse_retire
from .series import Patch, decode, read_series
from .stack import apply_exactly, apply_loosely, patch_misfits, scratch
from .symbols import WheelSymbols
from .talk import say
from .unpack import read_member, read_metadata
from .uses import uses_in
from .wheel_cache import download, resolve_any, sha256_of


@dataclass(frozen=True)
class PatchFate:
    """`fate` is clean, offset, conflict or already-in; `retire`: its `Retire-When` holds."""

    slug: str
    fate: str
    detail: str
    retire: bool


@dataclass(frozen=True)
class SymbolFate:
    """`fate` is present, changed or gone; `before` and `after` are signatures."""

    symbol: str
    fate: str
    before: str
    after: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Forecast:
    """What a change of the pin would meet."""

    version: str
    wheel: str
    sha256: str
    patches: tuple[PatchFate, ...]
    symbols: tuple[SymbolFate, ...]

    @property
    def fine(self) -> bool:
        fitting = all(patch.fate == "clean" and not patch.retire for patch in self.patches)
        return fitting and all(symbol.fate == "present" for symbol in self.symbols)


def forecast(layout: Layout, version: str, given: Path | None = None) -> Forecast:
    """Tries the series and our modules on upstream `version`: the wheel `given`, else by pip."""
    pin = read_pin(layout.pin)
    patches = read_series(layout)
    _, pinned = resolve_any(pin)
    with tempfile.TemporaryDirectory(prefix="sglang-spec-") as folder:
        wheel = given or _fetch(pin, version, Path(folder))
        _check_wheel(wheel, pin, version)
        return Forecast(
            version,
            wheel.name,
            sha256_of(wheel),
            tuple(_patch_fates(pin, wheel, version, patches)),
            tuple(_symbol_fates(layout, pinned, wheel)),
        )


def _check_wheel(wheel: Path, pin: Pin, version: str) -> None:
    """Refuses a file that is not the release asked for: the answer would be about another one."""
    if not wheel.is_file():
        raise VendoringError(
            "the given wheel does not exist",
            file=str(wheel),
            remedy="name a file: --wheel FILE, or leave it out and let pip fetch the release",
        )
    text = read_metadata(wheel, "METADATA").split("\n\n")[0]
    given = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if (given.get("Name"), given.get("Version")) != (pin.name, version):
        raise VendoringError(
            "the given wheel is of another release",
            file=str(wheel),
            key="Version",
            value=f"{given.get('Name')} {given.get('Version')}, asked for {pin.name} {version}",
            remedy=f"name the wheel of {pin.name} {version}, or ask for the release it is of",
        )


def _fetch(pin: Pin, version: str, folder: Path) -> Path:
    say(f"fetching {pin.name} {version} from the package index (its hash is not pinned)")
    try:
        return download(pin.name, version, folder)
    except VendoringError as fault:
        fault.remedy = "fetch the wheel on another host and name it: --wheel FILE"
        raise


def _patch_fates(
    pin: Pin, wheel: Path, version: str, patches: tuple[Patch, ...]
) -> list[PatchFate]:
    def read(path: str) -> str | None:
        data = read_member(wheel, path)
        return None if data is None else decode(data)

    fates: list[PatchFate] = []
    with scratch(pin, wheel, patches) as repo:
        for patch in patches:
            fate, detail = _try_patch(repo, patch)
            condition = parse_retire(patch.header.get("Retire-When"))
            due = condition is not None and is_due(condition, version, read, fate == "already-in")
            fates.append(PatchFate(patch.slug, fate, detail, due))
    return fates


def _try_patch(repo: GitRepo, patch: Patch) -> tuple[str, str]:
    """Applies what can be applied, so that later patches meet what they would meet."""
    bad = patch_misfits(patch, repo.work_tree)
    if not bad:
        apply_exactly(repo, patch)
        return "clean", ""
    detail = "; ".join(f"{m.path}, hunk {m.hunk}, {m.detail}" for m in bad)
    if repo.attempt("apply", "--check", "--reverse", "-", feed=patch.diff).returncode == 0:
        return "already-in", ""
    try:
        apply_loosely(repo, patch)
    except VendoringError:
        # git refuses to move a hunk off the first line of a file; for a person that is an offset.
        return "conflict" if any(m.offset is None for m in bad) else "offset", detail
    return "offset", detail


def _symbol_fates(layout: Layout, pinned: Path, wheel: Path) -> list[SymbolFate]:
    before, after = WheelSymbols(pinned), WheelSymbols(wheel)
    users: dict[str, list[str]] = {}
    for use in uses_in(own_modules(layout), layout.root):
        users.setdefault(use.symbol, []).append(use.file)
    fates: list[SymbolFate] = []
    for symbol, files in sorted(users.items()):
        old, new = before.signature(symbol), after.signature(symbol)
        if old is None:
            continue  # a patch of ours makes it, so the patch's fate says what there is to say
        fate = "gone" if new is None else "present" if new == old else "changed"
        fates.append(SymbolFate(symbol, fate, old, new or "", tuple(files)))
    return fates


def own_modules(layout: Layout) -> list[Path]:
    """Our Python files that run inside or beside the engine."""
    folders = (layout.own, layout.python / "sglang_spec", layout.root / "sgl-kernel")
    found = [path for folder in folders for path in folder.rglob("*.py")]
    return sorted(path for path in found if "__pycache__" not in path.parts)


def forecast_data(result: Forecast) -> dict[str, Any]:
    return asdict(result) | {"fine": result.fine}


def forecast_text(result: Forecast) -> str:
    """One line per patch, then the symbols that need a look."""
    lines = [f"{result.wheel} sha256 {result.sha256}"]
    width = max((len(patch.slug) for patch in result.patches), default=0)
    for patch in result.patches:
        retire = "  Retire-When holds" if patch.retire else ""
        lines.append(f"{patch.fate:<10} {patch.slug:<{width}}  {patch.detail}{retire}".rstrip())
    counts = {
        fate: sum(symbol.fate == fate for symbol in result.symbols)
        for fate in ("present", "changed", "gone")
    }
    lines.append(", ".join(f"{count} symbols {fate}" for fate, count in counts.items()))
    for symbol in result.symbols:
        if symbol.fate != "present":
            lines.append(f"{symbol.fate:<10} {symbol.symbol}  in {', '.join(symbol.files)}")
        if symbol.fate == "changed":
            lines += [f"           was {symbol.before}", f"           is  {symbol.after}"]
    return "\n".join(lines)
