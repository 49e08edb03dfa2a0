"""Every test under `test/gpu` needs a GPU; multi-GPU tests ask for more by `kit.gpus.needs`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import gpus
from kit.decode_setups import Setup
from kit.fidelity_gpu import PLAIN, REASONING, thinking_pairs
from kit.fleet import Fleet
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny import Plan

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(gpus.needs(1))


@pytest.fixture(scope="session")
def fleet(request: pytest.FixtureRequest, servers: ServerPool) -> Iterator[Fleet]:
    """Servers of the setups that this run's tests are parametrized with, in their order."""
    setups = dict.fromkeys(
        item.callspec.params["setup"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and hasattr(item, "callspec")
        and isinstance(item.callspec.params.get("setup"), Setup)
        and not any(mark.args and mark.args[0] for mark in item.iter_markers("skipif"))
    )
    found = Fleet(servers)
    try:
        for setup in sorted(setups, key=lambda setup: not setup.slow):
            found.expect((setup.name, launch) for launch in setup.launches())
        yield found
    finally:
        found.close()


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[Plan, Pair]:
    """The tiny pairs with words for reasoning and JSON."""
    return thinking_pairs(tmp_path_factory.mktemp("thinking"))


@pytest.fixture
def plain(servers: ServerPool, pairs: dict[Plan, Pair]) -> Client:
    """The judge of what requests ask for; asked for by each test anew, as the pool stops others."""
    return servers.client(PLAIN.launch(*REASONING, pairs=pairs))
