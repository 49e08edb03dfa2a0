"""Penalties and all else that a request can ask for, across random decisions, in more servers.

All in the full suite: four servers and a plain one, four minutes. `test_threshold.py` has a case of
each in the short one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kit import drawn_asks
from kit.asking import Ask
from kit.counted_crossing import check_drawn, check_penalties
from kit.crossing import FLAGS, Crossing, crossing
from kit.fidelity_servers import MODES, PLAIN
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny import Plan
from sglang_spec.server import Launch, Speculation

pytestmark = pytest.mark.full  # four servers
OVERLAP = {"SPEC_TEST_OVERLAP": "1"}
RETRACT = {"SPEC_TEST_RETRACT": "1"}
COMPARED = {"SGLANG_ENABLE_RANK_CONSENSUS_CHECKER": "1"}


@dataclass(frozen=True)
class Case:
    """One way to serve.

    Attributes:
        mode: of `fidelity_servers.MODES`.
        retracts: whether some request is retracted on the way.
    """

    mode: str
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    retracts: bool = False


CASES = {
    "chain-no-overlap": Case("some-rejected"),
    "tree-overlap": Case("tree", (), OVERLAP),
    "tree-overlap-retracted": Case("tree", (), OVERLAP | RETRACT, retracts=True),
    "chain-overlap-tp2": Case("some-rejected", ("--tp-size", "2"), OVERLAP | COMPARED),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def server(
    servers: ServerPool,
    pairs: dict[Plan, Pair],
    case: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Crossing]:
    chosen = CASES[case]
    plan, numbers = MODES[chosen.mode]
    kept = [flag for flag in PLAIN if flag != "--disable-overlap-schedule"]
    flags = (*FLAGS, *kept, "--chunked-prefill-size", "96", "--skip-speculative-self-test")
    launch = Launch(
        pairs[plan].target,
        Speculation(pairs[plan].draft, *numbers),
        "float32",
        (*flags, *chosen.flags),
        chosen.environment,
    )
    with crossing(servers, launch, tmp_path_factory.mktemp(case)) as found:
        yield found


def test_penalties_count_alike_in_steps_of_both_kinds(server: Crossing, case: str) -> None:
    before, retractions = server.info(), 0
    for seed, plan in enumerate(("coin 1", "coin 2", "")):
        server.plan(plan)
        retractions += check_penalties(server, seed)
    assert server.info()["switches"] - before["switches"] > 10
    assert (retractions > 0) == CASES[case].retracts


@settings(max_examples=5, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.integers(0, 99), st.lists(drawn_asks.asks(), min_size=8, max_size=24))
def test_drawn_requests_get_the_plain_answers(
    plain: Client, server: Crossing, case: str, seed: int, asks: list[Ask]
) -> None:
    if CASES[case].retracts:
        # Under overlap a plain step in flight is dropped, and a processor that remembers has seen
        # it; that of a verify is taken back.
        asks = [one for one in asks if one.processor is None]
    server.plan(f"coin {seed}")
    check_drawn(plain, server, asks)
