"""Adapters across the batch threshold on one GPU: graphs, overlap, two LoRA backends. Unrun.

Graphs of a verify and of a plain decode read which row wants which adapter from buffers of their
own. Two servers a backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from kit import adapter_asks
from kit.adapter_asks import Answers, ask, check_answers, check_apart, check_draft_kv
from kit.crossing import FLAGS, STEPS, Crossing, crossing
from kit.servers import ServerPool
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation

COMMON = (
    *("--mem-fraction-static", "0.8", "--max-total-tokens", "65536"),
    *("--max-running-requests", "64", "--cuda-graph-max-bs-decode", "32"),
    *("--context-length", "2048", "--attention-backend", "triton"),
)
TOLERANCE = 1e-2


@dataclass(frozen=True)
class Served:
    server: Crossing
    expected: Answers


@pytest.fixture(params=["csgmv", "triton"], scope="module")
def served(
    request: pytest.FixtureRequest,
    servers: ServerPool,
    tiny: Pair,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp(request.param)
    adapted = (*COMMON, *adapter_asks.flags(folder, tiny.target, request.param))
    plain = servers.client(Launch(tiny.target, None, "float32", adapted))
    expected = ask(plain)
    check_apart(expected, plain)
    speculation = Speculation(tiny.draft, STEPS, 1, STEPS + 1)
    launch = Launch(tiny.target, speculation, "float32", (*FLAGS, *adapted))
    with crossing(servers, launch, folder) as server:
        yield Served(server, expected)


@pytest.mark.parametrize("plan", ["on", "off 100000", "coin 1", "coin 2", ""])
def test_answers_with_adapters_are_those_of_no_speculation(served: Served, plan: str) -> None:
    check_answers(served.server, plan, served.expected)


@pytest.mark.parametrize("plan", ["off 17", "coin 5"])
def test_the_drafts_kv_of_adapted_requests_is_that_of_a_run_never_off(
    served: Served, plan: str
) -> None:
    check_draft_kv(served.server, plan, TOLERANCE)
