"""Kimi-K2.5's and DeepSeek-V3's classes on a GPU: latent attention, INT4 experts, both drafts.

The tiny targets have one right answer to every prompt, so no second server is needed to know what
greedy decoding without speculation says; one of these tests asks it all the same. What is captured
is held against transformers in float32: by the fingerprint in each server's self-test, and state
for state by a dump. `test/cpu/test_kimi.py` runs the same checks where there is no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import deepseek, gpus
from kit.deepseek import Setup
from kit.servers import LOGS
from sglang_spec.client import Client
from sglang_spec.server import Server, ServerError

# Kernels for a new head size or for INT4 are compiled at the first start, for minutes.
READY = 570.0

TRITON = ("--attention-backend", "triton")
SETUPS = (
    Setup("kimi", "mla", TRITON),
    Setup("kimi", "llama", TRITON),
    Setup("kimi", "mla", (*TRITON, "--moe-runner-backend", "triton")),
    Setup("deepseek", "mla", TRITON),
    Setup("kimi", "mla", ("--attention-backend", "flashinfer")),
    # The fusion that upstream switches on for these classes is no matter of this test.
    Setup("kimi", "mla", (*TRITON, "--enforce-disable-flashinfer-allreduce-fusion"), tp=2),
)


def named(setup: Setup) -> str:
    return f"{setup}{'-moe' * ('--moe-runner-backend' in setup.flags)}"


@pytest.fixture(
    params=[pytest.param(setup, marks=gpus.needs(setup.tp)) for setup in SETUPS],
    ids=named,
    scope="module",
)
def setup(request: pytest.FixtureRequest) -> Setup:
    found: Setup = request.param
    return found


@pytest.fixture(scope="module")
def marked(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return deepseek.marked_draft(setup, tmp_path_factory.mktemp("marked"))


@pytest.fixture(scope="module")
def client(setup: Setup, marked: Path) -> Iterator[Client]:
    with Server(setup.launch(marked), LOGS / f"gpu-{named(setup)}.log") as server:
        server.wait_ready(READY)
        client = Client(server.url)
        yield client
        client.close()


@pytest.mark.parametrize("batch", [1, 5, 24])  # 24 is above the largest captured graph
def test_tokens_are_those_without_speculation(setup: Setup, client: Client, batch: int) -> None:
    for answer in deepseek.check_tokens(setup, client, batch):
        deepseek.check_accepted(answer)


def test_captured_layers_are_those_of_the_contract(setup: Setup, client: Client) -> None:
    deepseek.check_captured(setup, client)


def test_a_prefix_that_is_cached(setup: Setup, client: Client) -> None:
    """The latent path with a prefix is another one than the prefill of a whole prompt."""
    client.flush_cache()
    (start,) = deepseek.prompts(1, seed=3)
    start = start * 3
    first = client.generate(start, 16, ignore_eos=True)
    longer = [*start, *first.tokens[:5]]
    again = client.generate(longer, 16, ignore_eos=True)
    assert again.meta["cached_tokens"] > len(start) // 2
    assert list(again.tokens) == deepseek.PLANS[setup.target].greedy(longer, 16)


def test_a_server_without_speculation_says_the_same() -> None:
    setup = Setup("kimi", None, TRITON)
    with Server(setup.launch(), LOGS / "gpu-kimi-none.log") as server:
        server.wait_ready(READY)
        client = Client(server.url)
        answers = deepseek.check_tokens(setup, client, 5)
        assert not any(answer.cycles for answer in answers)
        client.close()


@pytest.mark.parametrize("target", ["kimi", "deepseek"])
def test_states_of_int4_experts_are_those_of_transformers(target: str, tmp_path: Path) -> None:
    deepseek.check_states(Setup(target, None, TRITON), tmp_path)


def test_a_layer_that_only_the_fingerprint_finds(tmp_path: Path) -> None:
    setup = Setup("kimi", "mla", TRITON)
    draft = deepseek.one_layer_off(deepseek.marked_draft(setup, tmp_path), tmp_path / "off")
    server = Server(setup.launch(draft), LOGS / "gpu-kimi-off.log")
    with pytest.raises(ServerError) as ended, server:
        server.wait_ready(READY)
    assert deepseek.OFF_BY_ONE in str(ended.value)
