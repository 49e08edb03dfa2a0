"""The torch-free core, as `sglang-spec` imports it, and the recorded machines."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data"
MACHINES = sorted(path.stem for path in DATA.glob("*.json"))


@pytest.fixture(scope="session")
def comm() -> Any:
    return import_module("sglang_spec.hardening.comm.core")


@pytest.fixture(scope="session")
def machine(comm: Any) -> Any:
    """`machine("h200-x8")`: the facts of a recorded machine."""
    return lambda name: comm.Facts.load(DATA / f"{name}.json")
