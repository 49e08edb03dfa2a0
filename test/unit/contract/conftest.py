"""The tiny pairs as bases for edited ones, and the contract loaded without the engine."""

from __future__ import annotations

import pytest
from sglang_spec.models.pair import Pair
from sglang_spec.models.tiny import TINY, TINY_HALF, tiny_pair


@pytest.fixture(scope="session")
def tiny() -> Pair:
    return tiny_pair(TINY)


@pytest.fixture(scope="session")
def tiny_half() -> Pair:
    return tiny_pair(TINY_HALF)
