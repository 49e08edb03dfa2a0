"""Makes `python/sglang`: built beside it, moved into place in one go, stamped last."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .errors import VendoringError
from .gitrepo import APPLIED_REF, GitRepo
from .interpreter import pinned_wheel
from .layout import OWN_PACKAGE, Layout
from .lock import locked
from .pin import Pin, PinnedWheel, read_pin
from .series import Patch, read_series
from .stack import apply_exactly, base_message
from .stamp import Identity, read_stamp, renew_own, stamp_of, wanted, write_stamp
from .state import Condition, TreeState, inspect
from .talk import say
from .unpack import unpack
from .wheel_cache import resolve

_SHOWN = 20  # names in a refusal


def apply(layout: Layout, discard: bool = False, keep_edits: bool = False) -> TreeState:
    """Brings the tree to the pin and the series, and gives the state that was found before.

    Does nothing to a current tree. Refuses a tree with somebody's edits unless `discard`, or
    with `keep_edits` where nothing but the edits differs. When it
    fails or is cut off, the old tree is untouched or has no stamp.
    """
    pin = read_pin(layout.pin)
    wheel = pinned_wheel(pin)
    with locked(layout.lock):
        patches = read_series(layout)
        identity = wanted(pin, wheel, patches)
        found = inspect(layout, identity)
        if found.condition is Condition.CURRENT:
            _renew_stamp(layout, identity, patches)
            return found
        if found.condition is Condition.EDITED and not discard:
            if keep_edits and found.identity == identity and not found.operation:
                say("the tree has local edits and is left as it is")
                renew_own(layout.stamp, layout.own)
                return found
            raise refusal(found)
        _clear(layout)
        _build(layout, pin, wheel, patches)
        if found.condition is Condition.UNKNOWN and not discard:
            _keep_foreign(layout)
        _swap(layout, identity, patches)
        say(
            f"{layout.shown(layout.tree)} is {pin.name} {pin.version} ({wheel.tag}) "
            f"with {len(patches)} patches"
        )
    return found


def _renew_stamp(layout: Layout, identity: Identity, patches: tuple[Patch, ...]) -> None:
    """Brings the stamp of a tree that is current up to what a new one would say."""
    content = read_stamp(layout.stamp) or {}
    if "own" in content:
        renew_own(layout.stamp, layout.own)
    else:  # one from before stamps knew more than the patched files
        write_stamp(layout.stamp, stamp_of(identity, patches, layout.tree, layout.own))


def refusal(state: TreeState) -> VendoringError:
    """The error that names what would be lost, and the ways to keep or to drop it."""
    names = [*state.edits, *(f"commit: {subject}" for subject in state.unexported)]
    if state.operation:
        names.append(f"an unfinished {state.operation}")
    more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return VendoringError(
        "the vendored tree has local work that patches/ does not have",
        file="python/sglang",
        value=", ".join(names[:_SHOWN] + more),
        remedy="keep it: `python -m vendoring new SLUG` (or `amend SLUG`), then "
        "`python -m vendoring export`; "
        "drop it: `python -m vendoring apply --discard`",
    )


def _clear(layout: Layout) -> None:
    """Removes what an earlier run that was cut off may have left beside the tree."""
    for path in (layout.staging, _trash(layout)):
        shutil.rmtree(path, ignore_errors=True)


def _trash(layout: Layout) -> Path:
    return layout.state / "trash"


def _build(layout: Layout, pin: Pin, wheel: PinnedWheel, patches: tuple[Patch, ...]) -> None:
    """The complete tree and its history in the staging folder."""
    file = resolve(pin, wheel)
    say(f"unpacking {wheel.file}")
    repo = GitRepo(layout.staging / "git", layout.staging / "sglang")
    unpack(file, repo.work_tree)
    if (repo.work_tree / OWN_PACKAGE).exists():
        raise VendoringError(
            "upstream now has a package of our name", file=f"python/sglang/{OWN_PACKAGE}"
        )
    repo.init()
    repo.commit_base(base_message(pin))
    say(f"applying {len(patches)} patches")
    for patch in patches:
        apply_exactly(repo, patch)
    repo.run("update-ref", APPLIED_REF, "HEAD")


def _swap(layout: Layout, identity: Identity, patches: tuple[Patch, ...]) -> None:
    """Puts the staged tree in place of the old one. Our own package stays where it is."""
    stamp = stamp_of(identity, patches, layout.staging / "sglang", layout.own)
    trash = _trash(layout)
    (trash / "srt").mkdir(parents=True)
    layout.swap_mark.touch()
    layout.stamp.unlink(missing_ok=True)
    (layout.tree / "srt").mkdir(parents=True, exist_ok=True)
    _move(layout.tree, trash)
    if layout.git_dir.exists():
        os.rename(layout.git_dir, trash / ".git-directory")
    _move(layout.staging / "sglang", layout.tree)
    os.rename(layout.staging / "git", layout.git_dir)
    write_stamp(layout.stamp, stamp)
    layout.swap_mark.unlink()
    _clear(layout)


def _move(source: Path, target: Path) -> None:
    """Renames the entries of a tree into another one, never `srt` itself nor our own package."""
    package, own = OWN_PACKAGE.split("/")
    for entry in source.iterdir():
        if entry.name != package:
            os.rename(entry, target / entry.name)
    for entry in (source / package).iterdir():
        if entry.name != own:
            os.rename(entry, target / package / entry.name)


def _keep_foreign(layout: Layout) -> None:
    """Copies aside what would be lost: without a git directory nothing tells edits."""
    staged = layout.staging / "sglang"
    aside = layout.state / "aside"
    kept = 0
    for path in sorted(layout.tree.rglob("*")):
        name = path.relative_to(layout.tree)
        if not path.is_file() or path == layout.stamp or "__pycache__" in name.parts:
            continue
        if layout.own in path.parents or _same(path, staged / name):
            continue
        target = aside / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
        kept += 1
    if kept:
        say(f"{kept} files that differ from the patched tree are kept in {layout.shown(aside)}")


def _same(one: Path, other: Path) -> bool:
    if not other.is_file() or one.stat().st_size != other.stat().st_size:
        return False
    return one.read_bytes() == other.read_bytes()
