"""Every test under `test/gpu` needs a GPU; multi-GPU tests ask for more by `kit.gpus.needs`."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit import gpus

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(gpus.needs(1))
