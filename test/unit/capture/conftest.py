"""Three synthetic samples."""

from __future__ import annotations

import pytest
from kit.streams import Stream, stream


@pytest.fixture(scope="session")
def streams() -> list[Stream]:
    return [stream(seed) for seed in range(3)]
