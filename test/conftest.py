"""Fixtures of the whole suite: threads pinned, model pairs, one pool of shared servers."""

from __future__ import annotations

import os
from collections.abc import Iterator

# Before torch is imported anywhere: more OpenMP threads than cores collapse the throughput.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from kit.servers import ServerPool
from sglang_spec.models import Pair, embedded_pair, tiny_pair


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run tests marked `full`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="needs --full (`make test-full`)")
    for item in items:
        if "full" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def servers() -> Iterator[ServerPool]:
    pool = ServerPool()
    try:
        yield pool
    finally:
        pool.close()


@pytest.fixture(scope="session")
def embedded() -> Pair:
    """SmolLM2-135M-Instruct and its trained draft."""
    return embedded_pair()


@pytest.fixture(scope="session")
def tiny() -> Pair:
    """The pair that is right by construction: every draft is accepted, or something is wrong."""
    return tiny_pair()
