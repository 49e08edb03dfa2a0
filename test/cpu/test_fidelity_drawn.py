"""Many requests drawn over all fields, in every mode: the plain answers, or refused by name.

For their time these run in `make test-full` only, with other examples each time; what a failing
run prints is enough to draw the same again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kit import drawn_asks
from kit.asking import Ask
from kit.crossing import FLAGS, Crossing, crossing
from kit.fidelity_servers import both, launch, retracting
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny import Plan

pytestmark = pytest.mark.full
DRAWN = settings(
    max_examples=25,
    deadline=None,
    derandomize=False,
    print_blob=True,
    phases=[Phase.generate],  # shrinking a failing batch takes many servers' time
    suppress_health_check=list(HealthCheck),
)
MANY = st.lists(drawn_asks.asks(), min_size=8, max_size=48)


@DRAWN
@given(MANY)
def test_many_drawn_requests_get_the_plain_answers(
    plain: Client, spec: Client, asks: list[Ask]
) -> None:
    both(plain, spec, asks)


@pytest.fixture(scope="module")
def retracted(
    servers: ServerPool, pairs: dict[Plan, Pair], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    program = tmp_path_factory.mktemp("retracting") / "program.py"
    with retracting(servers, launch(pairs, "some-rejected"), program) as client:
        yield client


@DRAWN
@given(MANY)
def test_retracted_requests_get_the_plain_answers(
    plain: Client, retracted: Client, asks: list[Ask]
) -> None:
    both(plain, retracted, asks)


@pytest.fixture(scope="module")
def crossed(
    servers: ServerPool, pairs: dict[Plan, Pair], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crossing]:
    folder = tmp_path_factory.mktemp("crossing")
    with crossing(servers, launch(pairs, "some-rejected", *FLAGS), folder) as server:
        yield server


@DRAWN
@given(MANY, st.integers(0, 99))
def test_requests_across_random_decisions_get_the_plain_answers(
    plain: Client, crossed: Crossing, asks: list[Ask], seed: int
) -> None:
    """Steps with a draft and without, by coins that are thrown."""
    crossed.plan(f"coin {seed}")
    both(plain, crossed.client, asks)
