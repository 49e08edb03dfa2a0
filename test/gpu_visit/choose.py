"""A pytest plugin: of what a lane names, only the tests that match its pattern and are not done.

`$VISIT_SELECT` is a pattern that a test's id must hold, `$VISIT_DONE` a file of ids to leave out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    pattern = re.compile(os.environ.get("VISIT_SELECT", ""))
    file = os.environ.get("VISIT_DONE")
    done = set(Path(file).read_text().splitlines()) if file else set()
    chosen = [item for item in items if pattern.search(item.nodeid) and item.nodeid not in done]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen
