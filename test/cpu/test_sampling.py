"""Sampled requests with EAGLE3 have the distribution that their parameters ask for.

The tiny pair's logits are known exactly and are the same in every context up to the order of the
tokens, so a server is held to the true distribution as well as to a server without speculation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from kit import homogeneity
from kit.draw_errors import RANK, errors
from kit.faulty_server import FaultyServer
from kit.servers import ServerPool
from sglang_spec.client import Answer, Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.server import Launch, ServerError, Speculation

ORACLE = Oracle(TINY)
PROMPT = [0, *range(70, 110)]
OTHERS = [[0, *range(300, 200, -3)], [0, 77, 78]]
DRAWS = 2048
POSITIONS = 3
TEMPERATURE = 4.0  # the greedy token has 36 %, eight more have 5 % each, 28 have 0.7 %
WIDE = ("--max-running-requests", "64", "--sleep-on-idle")
SPEC = ("--skip-speculative-self-test",)
SEEDED = (*WIDE, "--enable-deterministic-inference")


def speculation(tiny: Pair) -> Speculation:
    return Speculation(tiny.draft, 3, 1, 4)


@pytest.fixture(scope="module")
def plain(servers: ServerPool, tiny: Pair) -> Client:
    return servers.client(Launch(tiny.target, arguments=WIDE))


@pytest.fixture(scope="module")
def faulty(
    servers: ServerPool, tiny: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultyServer]:
    file = tmp_path_factory.mktemp("fault") / "fault"
    launch = Launch(tiny.target, speculation(tiny), arguments=(*WIDE, *SPEC))
    with FaultyServer(servers, launch, file, "sampling") as server:
        yield server


@pytest.fixture
def spec(faulty: FaultyServer) -> Client:
    """The server with speculation, in its healthy state."""
    faulty.plant("")
    return faulty.client


def draws(client: Client, **parameters: Any) -> list[Answer]:
    """DRAWS answers to one prompt, by default at TEMPERATURE."""
    options = {"temperature": TEMPERATURE, "ignore_eos": True, **parameters}
    return client.generate_batch([PROMPT] * DRAWS, POSITIONS, **options)


def p_values(first: Sequence[Answer], second: Sequence[Answer]) -> list[float]:
    """One chi-square test for each position.

    In 12 simulated runs of the tiny pair's own law the temperature of the fault "hot" gave at most
    1e-38 at the later positions, and 2e-4 where tokens were compared instead of their errors.
    """
    return [
        homogeneity.two_samples(errors(PROMPT, first, i), errors(PROMPT, second, i))
        for i in range(POSITIONS)
    ]


def truth(context: Sequence[int], temperature: float) -> dict[int, float]:
    """The target's distribution after a context."""
    weights = [math.exp(logit / temperature) for logit in ORACLE.logits(context)]
    return {token: weight / sum(weights) for token, weight in enumerate(weights)}


@pytest.fixture(scope="module")
def plain_draws(plain: Client) -> list[Answer]:
    return draws(plain)


@pytest.fixture(scope="module")
def spec_draws(faulty: FaultyServer) -> list[Answer]:
    faulty.plant("")
    return draws(faulty.client)


def test_sampled_tokens_have_the_plain_distribution(
    spec_draws: list[Answer], plain_draws: list[Answer]
) -> None:
    assert min(p_values(spec_draws, plain_draws)) > homogeneity.SIGNIFICANCE
    assert sum(sum(answer.correct_drafts[1:]) for answer in spec_draws) > 0  # it did speculate


# What the smaller fault fails by, the larger fails by all the more.
@pytest.mark.parametrize("fault", ["hot -", pytest.param("argmax -", marks=pytest.mark.full)])
def test_a_wrong_distribution_is_found(
    faulty: FaultyServer, plain_draws: list[Answer], fault: str
) -> None:
    faulty.plant(fault)
    found = p_values(draws(faulty.client), plain_draws)
    faulty.plant("")
    assert found[0] > homogeneity.SIGNIFICANCE  # the first token is the prefill's
    assert max(found[1:]) < homogeneity.SIGNIFICANCE


def check_truth(answers: Sequence[Answer]) -> None:
    """Each position after the first has the target's distribution, given its own context."""
    right = ORACLE.value(PROMPT)
    expected = {RANK[t] ^ right: p for t, p in truth(PROMPT, TEMPERATURE).items() if t in RANK}
    for position in range(1, POSITIONS):
        found = homogeneity.against(errors(PROMPT, answers, position), expected)
        assert found > homogeneity.SIGNIFICANCE


def test_every_position_has_the_true_distribution(spec_draws: list[Answer]) -> None:
    check_truth(spec_draws)


def test_a_tree_has_the_true_distribution(servers: ServerPool, tiny: Pair) -> None:
    """With siblings, a drawn token that is not the draft's first choice can be accepted too."""
    launch = Launch(tiny.target, Speculation(tiny.draft, 3, 4, 12), arguments=(*WIDE, *SPEC))
    answers = draws(servers.client(launch))
    check_truth(answers)
    accepted = sum(sum(answer.correct_drafts[1:]) for answer in answers)
    assert accepted > 0.45 * DRAWS  # a chain accepts its first draft in 36 % of the cycles


def allowed(context: Sequence[int], top_k: int, top_p: float, min_p: float) -> set[int]:
    """Tokens that the filters leave; of tokens with equal logits any may be the one that is cut."""
    p = truth(context, TEMPERATURE)
    order = sorted(p.values(), reverse=True)
    kept = set()
    for token, mass in p.items():
        above = [value for value in order if value > mass * (1 + 1e-9)]
        if len(above) < top_k and sum(above) <= top_p and mass >= min_p * order[0] * (1 - 1e-6):
            kept.add(token)
    return kept


FILTERS = {
    "top-k 9": {"top_k": 9},
    "top-p 0.3": {"top_p": 0.3},
    "top-p 0.7": {"top_p": 0.7},
    "min-p 0.1": {"min_p": 0.1},
    "all three": {"top_k": 20, "top_p": 0.9, "min_p": 0.01},
}


@pytest.mark.parametrize("name", FILTERS)
def test_only_what_the_filters_leave_is_sampled(spec: Client, name: str) -> None:
    filters: dict[str, Any] = {"top_k": 10_000, "top_p": 1.0, "min_p": 0.0, **FILTERS[name]}
    options = {"temperature": TEMPERATURE, "ignore_eos": True, **FILTERS[name]}
    answers = spec.generate_batch([PROMPT] * 64, 9, **options)
    seen, greedy = 0, 0
    for answer in answers:
        for position, token in enumerate(answer.tokens):
            context = [*PROMPT, *answer.tokens[:position]]
            kept = allowed(context, **filters)
            assert token in kept, (name, position)
            seen += 1
            greedy += token == ORACLE.next_token(context)
    assert greedy == seen if name == "top-p 0.3" else 0.3 < greedy / seen < 0.9


def request(client: Client, sampling: list[dict[str, Any]], **fields: Any) -> list[dict[str, Any]]:
    """One batch whose requests differ in their sampling parameters."""
    common = {"max_new_tokens": 12, "ignore_eos": True}
    reply = client.post(
        "/generate",
        input_ids=[PROMPT] * len(sampling),
        sampling_params=[{**common, **one} for one in sampling],
        **fields,
    )
    reply.raise_for_status()
    body: list[dict[str, Any]] = reply.json()
    return body


def test_greedy_rows_stay_greedy_among_sampled_ones(spec: Client) -> None:
    rows = request(spec, [{"temperature": 0.0}, {"temperature": TEMPERATURE}] * 8)
    expected = ORACLE.greedy(PROMPT, 12)
    assert all(row["output_ids"] == expected for row in rows[::2])
    assert all(row["output_ids"] != expected for row in rows[1::2])
    assert len({tuple(row["output_ids"]) for row in rows[1::2]}) == 8


def test_logprobs_are_those_of_the_sampled_token(spec: Client) -> None:
    rows = request(spec, [{"temperature": TEMPERATURE}] * 4, return_logprob=True)
    for row in rows:
        for position, (logprob, token, _) in enumerate(row["meta_info"]["output_token_logprobs"]):
            assert token == row["output_ids"][position]
            p = truth([*PROMPT, *row["output_ids"][:position]], TEMPERATURE)
            assert logprob == pytest.approx(math.log(p[token]), abs=1e-3)


def seeded(client: Client) -> list[list[int]]:
    """Answers under many seeds and parameters, together and alone."""
    parameters = [
        {"temperature": temperature, "sampling_seed": seed, **filters}
        for temperature in (1.0, TEMPERATURE, 8.0)
        for seed in (1, 2**40 + 7)
        for filters in ({}, {"top_k": 20}, {"top_p": 0.8})
    ]
    rows = request(client, parameters) + request(client, parameters[6:7])
    return [row["output_ids"] for row in rows]


@pytest.fixture(scope="module")
def seeded_plain(servers: ServerPool, tiny: Pair) -> list[list[int]]:
    return seeded(servers.client(Launch(tiny.target, arguments=SEEDED)))


def test_seeds_give_the_plain_tokens(
    servers: ServerPool, tiny: Pair, seeded_plain: list[list[int]], tmp_path: Any
) -> None:
    launch = Launch(tiny.target, speculation(tiny), arguments=(*SEEDED, *SPEC))
    with FaultyServer(servers, launch, tmp_path / "fault", "seeds") as server:
        found = seeded(server.client)
        assert found == seeded_plain
        assert found == seeded(server.client)
        # A filter changes no draw that it leaves, so some rows are alike.
        assert len({tuple(row) for row in found}) >= 8
        assert found[-1] == found[6]  # alone as beside others
        server.plant("late -")  # the control: a draw that is one position off is another draw
        assert seeded(server.client) != seeded_plain


def test_rejection_sampling_is_refused(servers: ServerPool, tiny: Pair) -> None:
    flags = ("--speculative-use-rejection-sampling",)
    server = servers.start(Launch(tiny.target, speculation(tiny), arguments=flags), "rejection")
    with pytest.raises(ServerError, match="--speculative-use-rejection-sampling is not available"):
        server.wait_ready()
    server.stop()
