"""EAGLE3 over two, four and eight GPUs: the tokens of no speculation, and faults of one rank.

Valid on any GPUs that many: the eight-GPU tests serve as the project's first user does (tensor
parallel 8, a chain of drafts, graphs up to batch 128, overlap), on eight Blackwell cards on PCIe.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit import decode_checks, gpus
from kit.decode_setups import CHUNK, Setup
from kit.fault_run import Plan as FaultPlan
from kit.fault_run import run_server
from kit.fleet import Fleet
from kit.servers import LOGS, ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny import Oracle

# The ranks compare every decision of a step and end the server when one differs.
WATCHED = {
    "SGLANG_ENABLE_RANK_CONSENSUS_CHECKER": "1",
    # Other tests' servers may hold memory of some of the GPUs.
    "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0",
}


def over(ranks: int, backend: str, *flags: str) -> Setup:
    return Setup(f"tp{ranks}-{backend}", backend, flags, tp=ranks, environment=WATCHED)


def parameter(setup: Setup) -> object:
    """Skipped where the GPUs are too few or the backend is missing."""
    chosen = gpus.with_backend(setup)
    return pytest.param(*chosen.values, id=chosen.id, marks=[*chosen.marks, gpus.needs(setup.tp)])


SETUPS = [
    parameter(over(ranks, backend)) for ranks in (2, 4, 8) for backend in ("flashinfer", "triton")
]


@pytest.fixture(params=SETUPS, scope="module")
def setup(request: pytest.FixtureRequest, fleet: Fleet) -> Iterator[Setup]:
    found: Setup = request.param
    yield found
    fleet.done(found.launch())


@pytest.fixture
def client(setup: Setup, fleet: Fleet) -> Client:
    return fleet.client(setup.launch(), setup.name)


@pytest.fixture
def oracle(setup: Setup) -> Oracle:
    assert setup.plan is not None
    return Oracle(setup.plan)


@pytest.mark.parametrize("batch", [1, 5, 128, 150])
def test_tp_tokens(client: Client, oracle: Oracle, batch: int) -> None:
    decode_checks.batch(client, oracle, batch)


def test_tp_accept_lengths(client: Client, setup: Setup, oracle: Oracle) -> None:
    decode_checks.accept_lengths(client, oracle, setup.steps)


def test_tp_prefix_hit_and_chunked_prefill(client: Client, oracle: Oracle) -> None:
    decode_checks.prefix_hit_and_chunks(client, oracle, CHUNK)


def test_tp_sampled_and_greedy_beside_each_other(client: Client, oracle: Oracle) -> None:
    """Sampled tokens are drawn on every rank and must agree, or the checker ends the server."""
    decode_checks.mixed_sampling(client, oracle, 12)


def test_tp_aborts(client: Client, oracle: Oracle) -> None:
    decode_checks.aborts(client, oracle, 10, pause=0.15)


def test_tp_self_test_proved_every_rank(setup: Setup, fleet: Fleet) -> None:
    log = fleet.server(setup.launch(), setup.name).log.read_text(errors="replace")
    assert "speculative self-test: proven" in log


FLAGS = (
    *("--mem-fraction-static", "0.3", "--max-total-tokens", "16384", "--max-running-requests", "8"),
    *("--cuda-graph-max-bs-decode", "8", "--attention-backend", "triton"),
)


@pytest.mark.parametrize(
    ("ranks", "stage", "kind"),
    [
        pytest.param(ranks, stage, kind, marks=gpus.needs(ranks))
        for ranks, stage, kind in (
            (1, "target_graphs", "raise"),
            (2, "draft_model", "raise"),
            (2, "target_graphs", "raise"),
            (2, "draft_pool", "kill"),
            (2, "self_test", "exit"),
            (4, "draft_graphs", "raise"),
            (8, "target_graphs", "raise"),
        )
    ],
)
def test_a_fault_of_the_last_rank_ends_all_by_name(
    servers: ServerPool, tiny: Pair, ranks: int, stage: str, kind: str
) -> None:
    """The others wait for the rank that failed in a collective; the tree ends all the same."""
    outcome = run_server(
        servers.zygote,
        tiny,
        FaultPlan(
            f"{stage}:{kind}:{ranks - 1}",
            tp=ranks,
            arguments=FLAGS,
            environment={**WATCHED, "SGLANG_SPEC_STAGE_TIMEOUT": "120"},
        ),
        limit=150,
    )
    assert outcome.code not in (None, 0), outcome
    assert not outcome.greens, outcome
    assert not outcome.left, outcome
    assert f"TP{ranks - 1}" in outcome.line and stage in outcome.line, outcome.line
    assert outcome.log.parent == LOGS
