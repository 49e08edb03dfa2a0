"""Sampled requests without a seed: the distribution is the plain one, at each position.

Every draw has penalties, a bias, min-p and a minimum length, so a wrong state at one position of
the verify window shows as a wrong distribution there; a planted one must.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit import homogeneity
from kit.faulty_server import FaultyServer
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair, tiny_pair
from sglang_spec.models.tiny import TINY_HALF
from sglang_spec.server import Launch, Speculation

PROMPT = [0, *range(70, 110)]
DRAWS = 4096
POSITIONS = 3
WIDE = ("--max-running-requests", "64")
SAMPLING: dict[str, Any] = {
    "temperature": 3.0,
    "min_p": 0.005,
    "repetition_penalty": 0.6,
    "frequency_penalty": 2.0,
    "min_new_tokens": 2,
    "stop_token_ids": list(range(64, 320, 2)),
    "ignore_eos": True,
    "logit_bias": {"71": 12.0, "75": 10.0},
}


def draws(client: Client) -> list[list[int]]:
    """Tokens at each position."""
    answers = client.generate_batch([PROMPT] * DRAWS, POSITIONS, **SAMPLING)
    return [[answer.tokens[i] for answer in answers] for i in range(POSITIONS)]


def p_values(ours: list[list[int]], theirs: list[list[int]]) -> list[float]:
    pairs = zip(ours, theirs, strict=True)
    return [homogeneity.two_samples(one, other) for one, other in pairs]


@pytest.fixture(scope="module")
def plain_draws(servers: ServerPool, tiny: Pair) -> list[list[int]]:
    return draws(servers.client(Launch(tiny.target, arguments=WIDE)))


@pytest.fixture(scope="module")
def faulty(
    servers: ServerPool, tiny: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultyServer]:
    file = tmp_path_factory.mktemp("fault") / "fault"
    flags = (*WIDE, "--skip-speculative-self-test")
    launch = Launch(tiny.target, Speculation(tiny.draft, 3, 1, 4), arguments=flags)
    with FaultyServer(servers, launch, file, "fidelity") as server:
        yield server


def test_every_position_has_the_plain_distribution(
    faulty: FaultyServer, plain_draws: list[list[int]]
) -> None:
    found = draws(faulty.client)
    assert min(p_values(found, plain_draws)) > homogeneity.SIGNIFICANCE
    # Stop tokens, the even ones, are banned twice, and then half of what is likely.
    shares = [sum(token % 2 == 0 for token in tokens) / DRAWS for tokens in found]
    assert shares[:2] == [0, 0] and 0.2 < shares[2] < 0.8


def test_a_window_judged_by_its_first_position_is_found(
    faulty: FaultyServer, plain_draws: list[list[int]]
) -> None:
    faulty.plant("relaxed -")
    found = p_values(draws(faulty.client), plain_draws)
    faulty.plant("")
    assert min(found[:2]) > homogeneity.SIGNIFICANCE  # the first window starts after these
    assert found[2] < homogeneity.SIGNIFICANCE


@pytest.mark.full
@pytest.mark.parametrize("topk", [1, 4])
def test_other_trees_have_the_plain_distribution(
    servers: ServerPool, plain_draws: list[list[int]], topk: int
) -> None:
    pair = tiny_pair(TINY_HALF)
    numbers = (3, topk, 4 if topk == 1 else 12)
    flags = (*WIDE, "--skip-speculative-self-test")
    launch = Launch(pair.target, Speculation(pair.draft, *numbers), arguments=flags)
    found = draws(servers.client(launch))
    assert min(p_values(found, plain_draws)) > homogeneity.SIGNIFICANCE
