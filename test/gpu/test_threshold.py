"""The batch threshold on GPUs: graphs of the plain decode, overlap, both attention backends.

The same checks as on the CPU, where neither graphs nor overlap exist. Four servers of one GPU,
about five minutes on an H200, and one each of two, four and eight, whose ranks compare all they
decide (unrun).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from kit import gpus
from kit.crossing import (
    CAPACITY,
    FLAGS,
    Crossing,
    check_draft_kv,
    check_prefix,
    check_random_arrivals,
    check_return,
    crossing,
    prompt,
)
from kit.servers import ServerPool
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation

COMMON = (
    *("--mem-fraction-static", "0.8", "--max-total-tokens", "65536"),
    *("--max-running-requests", "64", "--cuda-graph-max-bs-decode", "32"),
    *("--context-length", "2048", "--chunked-prefill-size", "256"),
    *("--decode-log-interval", "1"),
)
# Keys of one draft are products of other shapes in a plain decode; in bfloat16 some differ by a
# unit in the last place, of which the largest is 1/256 of the largest element.
TOLERANCE = 2**-7


@dataclass(frozen=True)
class Setup:
    """One way to serve."""

    name: str
    flags: tuple[str, ...]
    speculation: tuple[int, int, int] = (3, 1, 4)
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)

    def launch(self, pair: Pair) -> Launch:
        speculation = Speculation(pair.draft, *self.speculation)
        arguments = (*FLAGS, *COMMON, *self.flags)
        return Launch(pair.target, speculation, "bfloat16", arguments, self.environment)


def over(ranks: int) -> Any:
    """Skipped where the GPUs are too few."""
    flags = ("--attention-backend", "triton", "--tp-size", str(ranks))
    environment = {
        "SGLANG_ENABLE_RANK_CONSENSUS_CHECKER": "1",
        "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0",
    }
    setup = Setup(f"tp{ranks}", flags, environment=environment)
    return pytest.param(setup, marks=gpus.needs(ranks))


SETUPS = (
    Setup("triton", ("--attention-backend", "triton")),
    Setup("flashinfer", ("--attention-backend", "flashinfer")),
    Setup("tree", ("--attention-backend", "triton", "--page-size", "16"), (3, 2, 8)),
    Setup("no-graphs", ("--attention-backend", "triton", "--disable-cuda-graph")),
    *(over(ranks) for ranks in (2, 4, 8)),
)


@pytest.fixture(params=SETUPS, ids=lambda setup: setup.name, scope="module")
def server(
    request: pytest.FixtureRequest,
    servers: ServerPool,
    tiny: Pair,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Crossing]:
    setup: Setup = request.param
    folder = tmp_path_factory.mktemp(setup.name)
    with crossing(servers, setup.launch(tiny), folder) as found:
        yield found


def test_off_is_a_plain_decode_and_the_draft_catches_up(server: Crossing) -> None:
    counted, _ = check_return(server)
    # Under overlap a batch is launched before the end of one of its requests is known.
    assert (
        counted["switches"] == 2 and counted["catch_ups"] == 2 and counted["catch_ups_kv_only"] == 1
    )
    assert 29 <= counted["batches_off"] <= 32
    info = server.info()
    graphs = "disable-cuda-graph" not in str(server.server.launch.arguments)
    # Told from the device's free memory, of which another server may have given some back.
    assert (info["graph_gb"] != 0) == graphs
    lines = [
        line
        for line in server.server.log.read_text(errors="replace").splitlines()
        if "Decode batch" in line
    ]
    assert lines
    assert all(f"cuda graph: {graphs}" in line for line in lines)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_arrivals_across_the_threshold(server: Crossing, seed: int) -> None:
    server.plan("")
    check_random_arrivals(server, seed, count=60, longest=200)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_random_decisions(server: Crossing, seed: int) -> None:
    server.plan(f"coin {seed}")
    before = server.info()
    check_random_arrivals(server, seed, count=60, longest=200)
    assert server.info()["switches"] - before["switches"] > 20


@pytest.mark.parametrize("plan", ["off 1", "off 16", "off 17", "off 40", "coin 5"])
def test_the_drafts_kv_is_that_of_a_run_never_off(server: Crossing, plan: str) -> None:
    check_draft_kv(server, plan, TOLERANCE)


def test_the_drafts_kv_of_several_requests(server: Crossing) -> None:
    check_draft_kv(server, "off 17", TOLERANCE, count=3)


@pytest.mark.parametrize("new", [1, 2, CAPACITY + 2, 50])
def test_a_prefix_that_was_generated_while_off(server: Crossing, new: int) -> None:
    check_prefix(server, new, page=16 if "--page-size" in server.server.launch.arguments else 1)


def test_sampled_requests_and_grammars_cross(server: Crossing) -> None:
    """Nothing ends the server, and log probabilities come with every token."""
    server.plan("coin 6")
    sampling = [
        {"temperature": 4.0, "max_new_tokens": 40},
        {"temperature": 4.0, "max_new_tokens": 60, "top_k": 20, "top_p": 0.9},
        {"temperature": 2.0, "max_new_tokens": 50, "min_p": 0.01},
        {"temperature": 0.0, "max_new_tokens": 70},
    ] * 3
    answers = server.client.post(
        "/generate",
        input_ids=[prompt(31 + n, 20) for n in range(len(sampling))],
        sampling_params=[{"ignore_eos": True, **chosen} for chosen in sampling],
        return_logprob=True,
        top_logprobs_num=2,
    ).json()
    for answer, chosen in zip(answers, sampling, strict=True):
        assert len(answer["output_ids"]) == chosen["max_new_tokens"]
        meta = answer["meta_info"]
        assert [row[1] for row in meta["output_token_logprobs"]] == answer["output_ids"]
        assert all(len(row) == 2 for row in meta["output_top_logprobs"])
