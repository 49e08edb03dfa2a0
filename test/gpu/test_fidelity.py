"""What a request asks for holds at every position of the verify window, on one GPU.

Greedy answers are the oracle's, with overlap scheduling and without, for chains and trees. Sampled
ones have the distribution of a plain server. That one runs without overlap: with it, upstream's
plain decoding learns of each token one step late, so its penalties are not a judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kit import homogeneity, processors
from kit.asking import Ask, ask
from kit.faulty_server import FaultyServer
from kit.fidelity_gpu import CHAIN, PLAIN, RETRACTED, SOME_REJECTED, TREE, WITHOUT_OVERLAP, Setup
from kit.penalized_oracle import greedy
from kit.penalty_fields import PENALTIES
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models.tiny import TINY, TINY_HALF, Oracle

ORACLE = Oracle(TINY)
PROMPT = (0, *range(70, 110))
COMING = ORACLE.greedy(PROMPT, 40)
DRAWS = 4096
POSITIONS = 4
ROOM = ("--max-running-requests", "128", "--cuda-graph-max-bs-decode", "64")
SAMPLED: dict[str, dict[str, Any]] = {
    "min-p": {"min_p": 0.01},
    "top-k and top-p": {"top_k": 3, "top_p": 0.38},
    "all three": {"top_k": 20, "top_p": 0.9, "min_p": 0.01},
    "penalties": {
        "min_p": 0.005,
        "repetition_penalty": 0.8,
        "frequency_penalty": 1.0,
        "min_new_tokens": 2,
        "stop_token_ids": list(range(64, 320, 2)),
        "logit_bias": {"71": 12.0, "75": 10.0},
    },
    "grammar": {"regex": "(t[12][0-9]*)+"},
    "processor": {"custom_params": {"token": 99}},
}
PROCESSORS = {"processor": processors.text_of(processors.Remembers)}  # changes the third token

SETUPS = (
    CHAIN,
    SOME_REJECTED,
    TREE,
    WITHOUT_OVERLAP,
    Setup("no-graphs", TINY_HALF, flags=("--disable-cuda-graph",)),
    RETRACTED,
    Setup("adaptive", TINY_HALF, flags=("--speculative-adaptive",)),
)
REJECTION = Setup("rejection", flags=("--speculative-use-rejection-sampling",))


@pytest.fixture(params=SETUPS, ids=lambda setup: setup.name, scope="module")
def client(request: pytest.FixtureRequest, servers: ServerPool) -> Client:
    return servers.client(request.param.launch(*ROOM))


def check(client: Client, asks: Sequence[Ask], kinds: Sequence[Any] = ()) -> None:
    """Asked together and then one by one: greedy answers are the oracle's."""
    called = [kind() for kind in kinds] or [None] * len(asks)
    expected = [
        greedy(ORACLE, one.prompt, one.sampling, each)
        for one, each in zip(asks, called, strict=True)
    ]
    assert [list(reply.tokens) for reply in ask(client, asks)] == expected
    for one, right in list(zip(asks, expected, strict=True))[:3]:
        assert [list(reply.tokens) for reply in ask(client, [one])] == [right]


def asks_of(*sampling: dict[str, Any]) -> list[Ask]:
    return [Ask(PROMPT, {"max_new_tokens": 64, "ignore_eos": True, **one}) for one in sampling]


def test_penalties(client: Client) -> None:
    asks = asks_of(*PENALTIES)
    check(client, asks)
    check(client, asks * 12)  # 84 rows: above the largest captured graph


def test_minimum_length(client: Client) -> None:
    check(
        client,
        [
            Ask(PROMPT, {"max_new_tokens": 40, "min_new_tokens": least, "stop_token_ids": stops})
            for stops in (COMING, COMING[5:6], COMING[6:12])
            for least in (0, 1, 2, 3, 6, 7, 8, 9, 20)
        ],
    )


def test_processors(client: Client) -> None:
    kinds = (processors.OnlyToken, processors.EveryFifth, processors.Remembers)
    sampling = {"max_new_tokens": 40, "ignore_eos": True, "custom_params": {"token": 99}}
    check(client, [Ask(PROMPT, sampling, processors.text_of(kind)) for kind in kinds], kinds)


def test_only_what_min_p_leaves_is_sampled(client: Client) -> None:
    common = {"max_new_tokens": 40, "ignore_eos": True, "temperature": 4.0}
    strict, loose = ask(client, [Ask(PROMPT, {**common, "min_p": p}) for p in (0.9, 0.1)])
    assert list(strict.tokens) == COMING
    rank = {token: value for value, token in enumerate(TINY.shuffle)}
    for place, token in enumerate(loose.tokens):
        right = ORACLE.value([*PROMPT, *loose.tokens[:place]])
        assert (rank[token] ^ right).bit_count() <= 1  # 14 % of the best; two bits off is 2 %
    assert list(loose.tokens) != COMING


def draws(client: Client, name: str) -> list[list[int]]:
    common = {"max_new_tokens": POSITIONS, "temperature": 4.0, "ignore_eos": True}
    one = Ask(PROMPT, {**common, **SAMPLED[name]}, PROCESSORS.get(name))
    answers = ask(client, [one] * DRAWS)
    return [[answer.tokens[i] for answer in answers] for i in range(POSITIONS)]


@pytest.fixture(scope="module")
def judged(servers: ServerPool) -> dict[str, list[list[int]]]:
    """Draws of a plain server."""
    client = servers.client(PLAIN.launch(*ROOM))
    return {name: draws(client, name) for name in SAMPLED}


@pytest.mark.parametrize("setup", [CHAIN, TREE, REJECTION], ids=lambda setup: setup.name)
@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_tokens_have_the_plain_distribution(
    servers: ServerPool, judged: dict[str, list[list[int]]], setup: Setup, name: str
) -> None:
    found = draws(servers.client(setup.launch(*ROOM)), name)
    for ours, theirs in zip(found, judged[name], strict=True):
        assert homogeneity.two_samples(ours, theirs) > homogeneity.SIGNIFICANCE


@pytest.mark.parametrize("setup", [CHAIN, REJECTION], ids=lambda one: f"faulty-{one.name}")
def test_a_window_judged_by_its_first_position_is_found(
    servers: ServerPool, judged: dict[str, list[list[int]]], setup: Setup, tmp_path: Path
) -> None:
    """The control: stop tokens stay banned in the whole of the first window."""
    with FaultyServer(servers, setup.launch(*ROOM), tmp_path / "fault", "fidelity") as server:
        server.plant("relaxed -")
        found = draws(server.client, "penalties")
    both = zip(found, judged["penalties"], strict=True)
    first, second, third, *_ = (homogeneity.two_samples(ours, theirs) for ours, theirs in both)
    assert min(first, second) > homogeneity.SIGNIFICANCE  # of prefill, and of the window's root
    assert third < homogeneity.SIGNIFICANCE
