"""Which SGLang this is: pin, patch-set hash, and whether the files still are those that were made.

Standard library only. Called by `sglang/version.py`, the engine's first log lines and
`/server_info` (patch `provenance-at-start`); `python -m vendoring apply` writes the stamp it reads.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parents[2]
STAMP = TREE / "_spec_pin.json"
OWN = "srt/spec_hardening"
_SHOWN = 8  # names of files in one line of the log


@dataclass(frozen=True)
class Provenance:
    """Where this tree comes from.

    `patch_set` is the hash over all patches in their order; `changed` names upstream's files whose
    content is not what the stamp says (edited or half replaced), `own_changed` those of our own
    package, also such as the stamp does not know. `missing` is True for a tree with no stamp that
    can be read.
    """

    version: str | None = None
    spec: int | None = None
    wheel_sha256: str | None = None
    patch_set: str | None = None
    patches: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    own_changed: tuple[str, ...] = ()
    missing: bool = False

    @property
    def differs(self) -> tuple[str, ...]:
        """Every file that is not what the stamp says."""
        return (*self.changed, *self.own_changed)


def read(stamp: Path = STAMP, tree: Path = TREE) -> Provenance:
    """The stamp of `tree`, with every file it names hashed again (about 0.1 s)."""
    content = _content(stamp)
    try:
        return Provenance(
            version=content["version"],
            spec=content["spec"],
            wheel_sha256=content["wheel_sha256"],
            patch_set=content["patch_set"],
            patches=tuple(patch["slug"] for patch in content["patches"]),
            changed=_differing(content["files"], tree),
            own_changed=_own_differing(content.get("own"), tree),
        )
    except KeyError:
        return Provenance(missing=True)


def _content(stamp: Path) -> dict[str, Any]:
    """What the stamp says; empty where there is none, or one that was damaged."""
    try:
        found = json.loads(stamp.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _differing(files: dict[str, str], tree: Path) -> tuple[str, ...]:
    return tuple(sorted(name for name, known in files.items() if _sha256(tree / name) != known))


def _own_differing(files: dict[str, str] | None, tree: Path) -> tuple[str, ...]:
    """Also modules that somebody put beside ours. Stamps from before know nothing of them."""
    if files is None:
        return ()
    found = (path for path in (tree / OWN).rglob("*.py") if not path.name.startswith("."))
    there = {path.relative_to(tree).as_posix() for path in found}
    return tuple(sorted({*_differing(files, tree), *(there - set(files))}))


def local_version(plain: str, stamp: Path = STAMP) -> str:
    """`plain` with the project's local part: `0.5.23` becomes `0.5.23+spec.1`."""
    if "+" in plain:
        return plain
    spec = _content(stamp).get("spec")
    return plain if spec is None else f"{plain}+spec.{spec}"


@lru_cache(maxsize=1)
def of_this_tree() -> Provenance:
    """`read()` once a process: files are hashed as they were when it started."""
    return read()


def log_line(provenance: Provenance) -> str:
    """One line for the start of a log."""
    if provenance.missing:
        return "SGLang without a stamp: not made by `python -m vendoring apply`, patches unknown"
    line = (
        f"SGLang {provenance.version}+spec.{provenance.spec}, {len(provenance.patches)} patches, "
        f"patch set {(provenance.patch_set or '')[:12]}"
    )
    names = provenance.differs
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        line += f"; files differ from the stamp: {', '.join(names[:_SHOWN])}{more}"
    return line


def announce(logger: logging.Logger) -> None:
    """Log what runs, as a warning if it is not what was made."""
    found = of_this_tree()
    level = logging.WARNING if found.missing or found.differs else logging.INFO
    logger.log(level, log_line(found))


def server_info() -> dict[str, Any]:
    """The entry `spec_hardening` of `/server_info`."""
    from . import draft_contract
    from .comm import launch

    return {
        "provenance": asdict(of_this_tree()),
        "contract": draft_contract.server_info(),
        "communication": launch.server_info(),
    }


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None
