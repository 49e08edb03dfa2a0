"""Penalties and `min_new_tokens` across crossings of the batch threshold, on one GPU.

Steps with and without speculation count alike under overlap and with graphs. Two servers, a minute.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.counted_crossing import PROMPT, check_penalties
from kit.crossing import FLAGS, Crossing, crossing
from kit.servers import ServerPool
from sglang_spec.models import tiny_pair
from sglang_spec.models.tiny import TINY, TINY_HALF
from sglang_spec.server import Launch, Speculation

COMMON = (
    *("--mem-fraction-static", "0.8", "--max-total-tokens", "65536"),
    *("--max-running-requests", "64", "--cuda-graph-max-bs-decode", "32"),
    *("--context-length", "2048", "--attention-backend", "triton"),
)
SETUPS = {"chain": (TINY, (3, 1, 4)), "tree": (TINY_HALF, (3, 4, 10))}


@pytest.fixture(params=SETUPS, scope="module")
def server(
    request: pytest.FixtureRequest,
    servers: ServerPool,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Crossing]:
    plan, numbers = SETUPS[request.param]
    pair = tiny_pair(plan)
    launch = Launch(
        pair.target,
        Speculation(pair.draft, *numbers),
        "bfloat16",
        (*FLAGS, *COMMON),
    )
    with crossing(servers, launch, tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.mark.parametrize("plan", ["on", "off 100000", "coin 1", "coin 2", ""])
def test_answers_are_those_of_no_speculation(server: Crossing, plan: str) -> None:
    server.plan(plan)
    for seed in range(2):
        check_penalties(server, seed, only=PROMPT)
