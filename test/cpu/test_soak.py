"""A soak of a whole server finds nothing; one of a server with a planted fault finds it and makes
the requests that show it few and simple."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.faulty_server import FaultyServer
from kit.servers import ServerPool
from soak.__main__ import Foreign
from soak.case import Failing
from soak.planner import Planner, Round
from soak.reference import Reference
from soak.settings import Settings
from soak.soak import Soak

SETTINGS = Settings()
SEED = 11
CROWD = 2  # requests in a batch from which the planted fault shows


@pytest.fixture(scope="module")
def faulty(servers: ServerPool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyServer]:
    file = tmp_path_factory.mktemp("fault") / "fault"
    launch, _ = SETTINGS.launches()
    quick = (*launch.arguments, "--skip-speculative-self-test")
    with FaultyServer(
        servers, dataclasses.replace(launch, arguments=quick), file, "soak"
    ) as server:
        yield server


@pytest.fixture
def soak(faulty: FaultyServer) -> Soak:
    """Of the server in its healthy state, against the oracle alone."""
    faulty.plant("")
    subject = Foreign(faulty.server.url, faulty.server.pid)
    reference = Reference(SETTINGS.oracle(), None)
    return Soak(subject, reference, SETTINGS.rules(), SETTINGS.written(), timeout=600)


@pytest.fixture
def planner(soak: Soak) -> Planner:
    limits = dataclasses.replace(SETTINGS.limits(), prompt=120, new=60)
    return Planner(SEED, limits, soak.reference.answers)


def test_a_whole_server(soak: Soak, planner: Planner) -> None:
    found = soak.run(planner, requests=72, size=12, seconds=1800, shrink_for=30)
    assert found.clean, (found.differences, found.leaks)
    assert found.requests == 72
    kinds = ("greedy", "sampled", "abort", "disconnect", "prefix hits", "stopped by a token")
    assert all(found.counts[kind] > 0 for kind in kinds), found.counts
    assert all(sample.kv_tokens == 0 for sample in found.samples)
    assert all(sample.host_memory and sample.files for sample in found.samples)


def test_a_planted_difference_is_made_small_and_fails_again(
    soak: Soak, faulty: FaultyServer, tmp_path: Path
) -> None:
    faulty.plant(f"crowd {CROWD}")
    limits = dataclasses.replace(SETTINGS.limits(), prompt=40, new=40, at_once=(8,))
    planner = Planner(SEED, limits, soak.reference.answers)
    found = soak.run(planner, requests=48, size=12, seconds=1800, shrink_for=900)
    assert "tokens" in {difference.kind for difference in found.differences}
    assert found.failing is not None and found.shrunk is not None
    assert found.shrunk.repeats
    # One more may have kept the two apart from others for long enough.
    assert CROWD <= len(found.failing.cases) <= CROWD + 1
    found.failing.write(tmp_path / "failing.json")

    again = Failing.read(tmp_path / "failing.json")
    assert Settings.read(again.settings) == SETTINGS
    sent = Round(again.round, again.at_once, again.cases)
    # Whether the two meet in a batch is a matter of milliseconds, and of the host's other work.
    assert any(soak.round(sent) for _ in range(200))
    faulty.plant("")
    assert soak.round(sent) == []


def test_a_planted_loss_of_drafts_is_a_difference(
    soak: Soak, planner: Planner, faulty: FaultyServer
) -> None:
    """The tokens stay right; only accept lengths show it."""
    faulty.plant("accept 0")
    differences = soak.round(planner.round(0, 12))
    assert {difference.kind for difference in differences} == {"acceptance"}


def test_planted_open_files_are_a_leak(soak: Soak, planner: Planner, faulty: FaultyServer) -> None:
    faulty.plant("files -")
    found = soak.run(planner, requests=36, size=6, seconds=1800, shrink_for=0)
    assert [leak.kind for leak in found.leaks] == ["files"]


@pytest.mark.full  # a trend of memory needs hundreds of requests: 40 s
def test_planted_memory_is_a_leak(soak: Soak, planner: Planner, faulty: FaultyServer) -> None:
    """One request at a time takes two steps at least, so 1 MiB is kept of each."""
    faulty.plant("memory 512")
    limits = dataclasses.replace(planner.limits, prompt=12, new=6, at_once=(1,))
    few = Planner(SEED, limits, soak.reference.answers)
    found = soak.run(few, requests=360, size=24, seconds=1800, shrink_for=0)
    assert [leak.kind for leak in found.leaks] == ["host_memory"]
    faulty.plant("")
