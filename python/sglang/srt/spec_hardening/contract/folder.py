"""Finds the folder behind a model argument without touching the network.

A local folder is itself. Anything else is taken as a hub id and looked up in the local Hugging Face
cache, where upstream has put the config by the time the server checks its arguments.
"""

from __future__ import annotations

import os
import re
from pathlib import Path


def find_folder(model: str | Path, revision: str | None = None) -> Path | None:
    """The folder that holds the model's config, or None if it is not on this machine."""
    try:
        local = Path(model).expanduser()
        if str(model) and local.is_dir():
            return local
    except (OSError, RuntimeError):  # a name that is too long, a home that is nobody's
        return None
    if not is_hub_id(model):
        return None
    repository = hub_cache() / ("models--" + str(model).replace("/", "--"))
    return _snapshot(repository, revision or "main")


def is_hub_id(model: str | Path) -> bool:
    """`name` or `organisation/name`; a path with more parts or a leading dot or slash is none."""
    return re.fullmatch(r"[\w][\w.-]*(/[\w][\w.-]*)?", str(model)) is not None


def hub_cache() -> Path:
    """Where huggingface_hub keeps its snapshots, by the same variables it reads."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if chosen := os.environ.get(variable):
            return Path(chosen).expanduser()
    home = os.environ.get("HF_HOME")
    if home:
        return Path(home).expanduser() / "hub"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser()
    return cache / "huggingface" / "hub"


def _snapshot(repository: Path, revision: str) -> Path | None:
    reference = repository / "refs" / revision
    commit = reference.read_text(errors="replace").strip() if reference.is_file() else revision
    snapshot = repository / "snapshots" / commit
    return snapshot if (snapshot / "config.json").is_file() else None
