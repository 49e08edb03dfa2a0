"""A chain's verify as a decode (`--speculative-verify-attention decode`) on one GPU.

Servers start ahead of their tests (`kit.fleet`); what they cost is in docs/gpu.md once they ran.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from kit import decode_checks, gpus, near_ties
from kit.decode_setups import CHUNK, Setup
from kit.fleet import Fleet
from sglang_spec.client import Client
from sglang_spec.models import held_out
from sglang_spec.models.tiny import TINY_HALF, Oracle
from sglang_spec.server import Launch

FLAG = "--speculative-verify-attention"
LEAVE, RETURN = 24, 16
THRESHOLD = (
    *("--speculative-disable-batch-threshold", str(LEAVE)),
    *("--speculative-enable-batch-threshold", str(RETURN)),
    *("--speculative-threshold-dwell", "2"),
)


@dataclass(frozen=True)
class Decoding(Setup):
    """A setup whose verify is a decode, and which may stop speculating at a batch size."""

    crosses: bool = False

    def launch(self) -> Launch:
        made = super().launch()
        more = (*made.arguments, FLAG, "decode", *(THRESHOLD if self.crosses else ()))
        return dataclasses.replace(made, arguments=more)


TINY_SETUPS = [
    Decoding("verify-decode"),
    Decoding("verify-decode-no-graphs", flags=("--disable-cuda-graph",)),
    Decoding("verify-decode-page-16", flags=("--page-size", "16")),
    Decoding(
        "verify-decode-page-16-no-graphs",
        flags=("--page-size", "16", "--disable-cuda-graph"),
        plan=TINY_HALF,
    ),
    Decoding("verify-decode-some-rejected", plan=TINY_HALF),
    Decoding("verify-decode-five-steps", speculation=(5, 1, 6)),
]
CROSSING = [
    Decoding("verify-decode-crossing", crosses=True),
    Decoding("verify-decode-crossing-no-graphs", flags=("--disable-cuda-graph",), crosses=True),
]
EMBEDDED = [Decoding("verify-decode-embedded", plan=None)]


def parameters(setups: list[Decoding]) -> list[object]:
    return [gpus.with_backend(setup) for setup in setups]


def state(client: Client) -> dict[str, int]:
    """Switches and batches of the threshold so far."""
    found: dict[str, int] = client.get("/server_info").json()["internal_states"][0][
        "batch_threshold"
    ]
    return found


@pytest.fixture(scope="module")
def setup(request: pytest.FixtureRequest, fleet: Fleet) -> Iterator[Decoding]:
    found: Decoding = request.param
    yield found
    for launch in found.launches():
        fleet.done(launch)


@pytest.fixture
def client(setup: Decoding, fleet: Fleet) -> Client:
    return fleet.client(setup.launch(), setup.name)


@pytest.fixture
def oracle(setup: Decoding) -> Oracle:
    assert setup.plan is not None
    return Oracle(setup.plan)


@pytest.mark.parametrize("setup", parameters(TINY_SETUPS), indirect=True, scope="module")
class TestAlways:
    """Servers that speculate at every batch size; 128 is the largest graph, 150 runs eagerly."""

    @pytest.mark.parametrize("batch", [1, 2, 3, 7, 16, 33, 64, 128, 150])
    def test_tokens_are_those_of_no_speculation(
        self, client: Client, oracle: Oracle, batch: int
    ) -> None:
        decode_checks.batch(client, oracle, batch)

    def test_accept_lengths(self, client: Client, setup: Decoding, oracle: Oracle) -> None:
        decode_checks.accept_lengths(client, oracle, setup.steps)

    def test_prefix_hit_and_chunked_prefill(self, client: Client, oracle: Oracle) -> None:
        decode_checks.prefix_hit_and_chunks(client, oracle, CHUNK)

    def test_requests_that_come_and_go(self, client: Client, oracle: Oracle) -> None:
        decode_checks.staggered(client, oracle, 96, 48)

    def test_the_server_says_so(self, setup: Decoding, fleet: Fleet) -> None:
        log = fleet.server(setup.launch(), setup.name).log.read_text(errors="replace")
        width = setup.speculation[2]
        assert f"Verify attends as a decode of {width} rows a request" in log
        assert "speculative self-test: proven" in log


@pytest.mark.parametrize("setup", parameters(CROSSING), indirect=True, scope="module")
class TestCrossing:
    """Verifies and plain steps in turn, from the same KV cache."""

    def test_tokens_are_those_of_no_speculation(self, client: Client, oracle: Oracle) -> None:
        before = state(client)
        for size in (8, 48, 12, 64):
            asked = decode_checks.prompts(size, seed=size)
            answers = client.generate_batch(asked, 48, ignore_eos=True)
            decode_checks.equal_to_oracle(oracle, asked, answers, 48)
        decode_checks.staggered(client, oracle, 96, 48)
        after = state(client)
        assert after["switches"] >= before["switches"] + 3
        assert after["batches_off"] > before["batches_off"]
        assert after["batches_on"] > before["batches_on"]


@pytest.mark.parametrize("setup", parameters(EMBEDDED), indirect=True, scope="module")
class TestTrained:
    """A trained pair in bfloat16, where two kernels may part at a tie, and only there."""

    @pytest.mark.parametrize("size", [1, 8, 64, 116])
    def test_in_a_batch(
        self,
        setup: Decoding,
        fleet: Fleet,
        client: Client,
        size: int,
        record_property: Callable[[str, object], None],
    ) -> None:
        base = fleet.client(setup.plain(), f"{setup.name}-plain")
        lines = held_out().read_text().splitlines()
        prompts = [json.loads(line)["prompt_ids"] for line in lines[:size]]
        found = near_ties.together(base, client, prompts, 64)
        record_property("partings", [[p.prompt, p.position, p.gap] for p in found])
        assert not [parting for parting in found if not parting.tie]
