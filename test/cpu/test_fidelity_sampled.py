"""Sampled requests without a seed: the distribution is the plain one, at each position.

With penalties, a bias, min-p and a minimum length a wrong state at one position of the verify
window shows as a wrong distribution there, and so it does with top-k, top-p and min-p; planted
faults must.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import homogeneity
from kit.crossing import FLAGS, crossing
from kit.draw_errors import errors
from kit.faulty_server import FaultyServer
from kit.fidelity_servers import MODES, adaptive_flags
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair, tiny_pair
from sglang_spec.models.tiny import TINY_HALF
from sglang_spec.server import Launch, Speculation

PROMPT = [0, *range(70, 110)]
POSITIONS = 3
WIDE = ("--max-running-requests", "64")
SPEC_FLAGS = (*WIDE, "--skip-speculative-self-test")
SAMPLINGS: dict[str, dict[str, Any]] = {
    "state": {
        "temperature": 3.0,
        "min_p": 0.005,
        "repetition_penalty": 0.6,
        "frequency_penalty": 2.0,
        "min_new_tokens": 2,
        "stop_token_ids": list(range(64, 320, 2)),
        "ignore_eos": True,
        "logit_bias": {"71": 12.0, "75": 10.0},
    },
    "filters": {"temperature": 4.0, "top_k": 12, "top_p": 0.8, "min_p": 0.01, "ignore_eos": True},
}
DRAWS = {"state": 4096, "filters": 2048}


def draws(client: Client, name: str) -> list[list[int]]:
    """Tokens at each position; with filters, by how much these miss the right ones."""
    prompts = [PROMPT] * DRAWS[name]
    answers = client.generate_batch(prompts, POSITIONS, **SAMPLINGS[name])
    if name == "filters":
        return [errors(PROMPT, answers, i) for i in range(POSITIONS)]
    return [[answer.tokens[i] for answer in answers] for i in range(POSITIONS)]


def p_values(ours: list[list[int]], theirs: list[list[int]]) -> list[float]:
    pairs = zip(ours, theirs, strict=True)
    return [homogeneity.two_samples(one, other) for one, other in pairs]


@pytest.fixture(scope="module")
def plain_draws(servers: ServerPool, tiny: Pair) -> dict[str, list[list[int]]]:
    client = servers.client(Launch(tiny.target, arguments=WIDE))
    return {name: draws(client, name) for name in SAMPLINGS}


@pytest.fixture(scope="module")
def faulty(
    servers: ServerPool, tiny: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultyServer]:
    file = tmp_path_factory.mktemp("fault") / "fault"
    launch = Launch(tiny.target, Speculation(tiny.draft, 3, 1, 4), arguments=SPEC_FLAGS)
    with FaultyServer(servers, launch, file, "fidelity") as server:
        yield server


@pytest.mark.parametrize("name", SAMPLINGS)
def test_every_position_has_the_plain_distribution(
    faulty: FaultyServer, plain_draws: dict[str, list[list[int]]], name: str
) -> None:
    found = draws(faulty.client, name)
    assert min(p_values(found, plain_draws[name])) > homogeneity.SIGNIFICANCE
    if name == "state":
        # Stop tokens, the even ones, are banned twice, and then half of what is likely.
        shares = [sum(token % 2 == 0 for token in tokens) / len(tokens) for tokens in found]
        assert shares[:2] == [0, 0] and 0.2 < shares[2] < 0.8


def test_a_window_judged_by_its_first_position_is_found(
    faulty: FaultyServer, plain_draws: dict[str, list[list[int]]]
) -> None:
    faulty.plant("relaxed -")
    found = p_values(draws(faulty.client, "state"), plain_draws["state"])
    faulty.plant("")
    assert min(found[:2]) > homogeneity.SIGNIFICANCE  # the first window starts after these
    assert found[2] < homogeneity.SIGNIFICANCE


def test_a_temperature_that_is_too_high_is_found_behind_filters(
    faulty: FaultyServer, plain_draws: dict[str, list[list[int]]]
) -> None:
    faulty.plant("hot -")
    found = p_values(draws(faulty.client, "filters"), plain_draws["filters"])
    faulty.plant("")
    assert found[0] > homogeneity.SIGNIFICANCE  # the first token is the prefill's
    assert max(found[1:]) < homogeneity.SIGNIFICANCE


@pytest.mark.full  # three more servers
@pytest.mark.parametrize("mode", ["some-rejected", "tree", "adaptive"])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_other_modes_have_the_plain_distribution(
    servers: ServerPool,
    plain_draws: dict[str, list[list[int]]],
    tmp_path_factory: pytest.TempPathFactory,
    mode: str,
    name: str,
) -> None:
    pair = tiny_pair(TINY_HALF)
    _, numbers = MODES[mode]
    more = adaptive_flags(tmp_path_factory.getbasetemp()) if mode == "adaptive" else ()
    launch = Launch(pair.target, Speculation(pair.draft, *numbers), arguments=(*SPEC_FLAGS, *more))
    found = draws(servers.client(launch), name)
    assert min(p_values(found, plain_draws[name])) > homogeneity.SIGNIFICANCE


@pytest.mark.full  # a server of its own
def test_steps_with_a_draft_and_without_have_the_plain_distribution(
    servers: ServerPool, plain_draws: dict[str, list[list[int]]], tmp_path: Path
) -> None:
    """Penalties are refused there."""
    pair = tiny_pair(TINY_HALF)
    launch = Launch(pair.target, Speculation(pair.draft, 3, 1, 4), arguments=(*SPEC_FLAGS, *FLAGS))
    with crossing(servers, launch, tmp_path) as server:
        server.plan("coin 4")
        found = draws(server.client, "filters")
        assert server.info()["batches_off"] > 20 and server.info()["batches_on"] > 20
    assert min(p_values(found, plain_draws["filters"])) > homogeneity.SIGNIFICANCE
