"""What a visit runs, as a hash: a test that passed with other code has to run again."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# Of SGLang's package ours; the rest is told by the patch set.
PACKAGES = {"sglang": "srt/spec_hardening", "sglang_spec": "", "sgl_kernel": ""}
LEFT_OUT = ("__pycache__", "results")


def code_hash() -> str:
    """Hex digits of a hash of our modules, the tests and what measures, wherever they lie."""
    digest = hashlib.sha256()
    for name, folder in _folders():
        for file in sorted([*folder.rglob("*.py"), *folder.rglob("*.toml")]):
            path = file.relative_to(folder)
            if not set(path.parts) & set(LEFT_OUT):
                digest.update(f"{name}/{path.as_posix()}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def _folders() -> Iterator[tuple[str, Path]]:
    yield "test", TESTS
    yield "benchmark", TESTS.parent / "benchmark"
    for name, below in PACKAGES.items():
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield name, Path(place) / below
