"""The same answers with speculation as without it, for everything that a request can ask for.

On the tiny pair every request has one right answer, sampled ones too: they have seeds, and a seeded
draw depends on seed and position only. The plain server is the judge, and greedy answers are held
to the oracle as well. How answers end, and grammars, are in `test_fidelity_ends.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kit import drawn_asks, processors, same_answers, thinking
from kit.asking import Ask, Reply, ask
from kit.fidelity_servers import COMING, ORACLE, PROMPT, asks_of, both, launch, retracting
from kit.penalized_oracle import greedy
from kit.penalty_fields import LIFTED, PENALTIES
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny import Plan
from sglang_spec.models.tiny.plan import EOS
from sglang_spec.server import Launch


def accepted(replies: Sequence[Reply]) -> set[int]:
    """Accept lengths that were seen, the bonus token included."""
    return {n + 1 for reply in replies for n, count in enumerate(reply.accepted) if count}


def test_penalties_give_the_plain_tokens(plain: Client, spec: Client, mode: str) -> None:
    asks = asks_of(*PENALTIES)
    replies = both(plain, spec, asks)
    for one, reply in zip(asks, replies, strict=True):
        assert list(reply.tokens) == greedy(ORACLE, one.prompt, one.sampling), one
    assert len({reply.tokens for reply in replies}) > 4  # they do change something
    if mode == "some-rejected":
        assert accepted(replies) == {1, 2, 3, 4}


def test_stop_tokens_are_banned_for_exactly_so_many_tokens(plain: Client, spec: Client) -> None:
    asks = [
        Ask(PROMPT, {"max_new_tokens": 40, "min_new_tokens": least, "stop_token_ids": stops})
        for stops in (COMING, COMING[5:6], COMING[6:12])
        for least in (0, 1, 2, 3, 6, 7, 8, 9, 20)
    ]
    for one, reply in zip(asks, both(plain, spec, asks), strict=True):
        assert len(reply.tokens) >= one.sampling["min_new_tokens"]
        assert list(reply.tokens) == greedy(ORACLE, one.prompt, one.sampling), one


def test_processors_give_the_plain_tokens(plain: Client, spec: Client) -> None:
    kinds = (processors.OnlyToken, processors.EveryFifth, processors.Remembers)
    asks = [
        Ask(
            PROMPT,
            {"max_new_tokens": 24, "ignore_eos": True, "custom_params": {"token": 99}, **more},
            processors.text_of(kind),
            logprobs=kind is not processors.OnlyToken,
        )
        for kind in kinds
        for more in ({}, {"repetition_penalty": 0.625}, {"temperature": 4.0, "sampling_seed": 3})
    ]
    replies = both(plain, spec, asks)
    assert replies[0].tokens == (99,) * 24
    assert replies[3].tokens[4::5] == (99,) * 4
    assert list(replies[6].tokens) != COMING[:24]
    assert sum(sum(reply.accepted[1:]) for reply in replies) > 0  # drafts were accepted between


def test_min_p_with_a_seed(plain: Client, spec: Client) -> None:
    asks = asks_of(
        *({"temperature": 4.0, "sampling_seed": 5, "min_p": p} for p in (0.001, 0.01, 0.1, 0.9)),
        {"temperature": 6.0, "sampling_seed": 6, "min_p": 0.01, "top_k": 40, "top_p": 0.9},
        {"temperature": 6.0, "sampling_seed": 6, "min_p": 0.01, "frequency_penalty": 1.0, **LIFTED},
    )
    replies = both(plain, spec, asks)
    assert list(replies[3].tokens) == COMING  # only the best token has 0.9 of the best one's share


def test_each_choice_of_several_is_the_plain_one(plain: Client, spec: Client) -> None:
    def choices(client: Client) -> Any:
        sampling = {"n": 3, "max_new_tokens": 16, "temperature": 4.0, "sampling_seed": 1}
        penalty = {"frequency_penalty": 1.0, **LIFTED}
        reply = client.post("/generate", input_ids=list(PROMPT), sampling_params=sampling | penalty)
        return [one["output_ids"] for one in reply.json()]

    assert choices(spec) == choices(plain)


def test_logprobs_of_the_neighbouring_position_are_found(plain: Client, spec: Client) -> None:
    """Sampled: each greedy token of this pair has the same logprob, and so have the best three."""
    asks = asks_of(*({"temperature": 4.0, "sampling_seed": n} for n in range(3)), logprobs=True)
    for one, reply in zip(asks, both(plain, spec, asks), strict=True):
        assert same_answers.unseen_shifts(one, reply, same_answers.TINY_TOLERANCE) == ["top"]


@pytest.mark.parametrize("field", ["beam_width", "return_sampling_mask"])
def test_what_cannot_be_right_is_refused(spec: Client, field: str) -> None:
    sampling: dict[str, Any] = {"max_new_tokens": 8, "temperature": 0}
    request: dict[str, Any] = {"input_ids": list(PROMPT), "sampling_params": sampling}
    if field == "beam_width":
        sampling |= {"beam_width": 2, "n": 2}
    else:
        request[field] = True
    reply = spec.post("/generate", **request)
    assert reply.status_code == 400 and field in reply.text
    assert spec.post("/generate", input_ids=[0, 70], sampling_params=sampling_of(8)).is_success


def sampling_of(new: int) -> dict[str, Any]:
    return {"max_new_tokens": new, "temperature": 0}


def test_a_retracted_request_gets_the_same_answer(
    servers: ServerPool, pairs: dict[Plan, Pair], plain: Client, tmp_path: Path
) -> None:
    """Retracted every few steps, prefilled again with its output, and penalized as before."""
    with retracting(servers, launch(pairs, "chain"), tmp_path / "program.py") as client:
        check_retracted(client)
        check_retracted_draws(plain, client)


def check_retracted_draws(plain: Client, client: Client) -> None:
    """With a seed, so that there is one right answer."""
    hot = [{"temperature": 4.0, "sampling_seed": n, "max_new_tokens": 24} for n in range(4)]
    fields: list[dict[str, Any]] = [
        {"min_p": 0.01},
        {"top_k": 20, "top_p": 0.9},
        {"frequency_penalty": 1.5, "repetition_penalty": 0.625, **LIFTED},
        {"min_new_tokens": 20, "stop_token_ids": COMING, "ignore_eos": False},
        {"regex": "(t[0-9]+){16}"},
    ]
    replies = both(plain, client, asks_of(*({**heat, **one} for heat in hot for one in fields)))
    assert sum(reply.retractions for reply in replies) > 2


def check_retracted(client: Client) -> None:
    asks = asks_of(
        {"repetition_penalty": 0.625},
        {"frequency_penalty": 1.5, **LIFTED},
        {"presence_penalty": 1.5, **LIFTED},
        {"min_new_tokens": 9, "stop_token_ids": COMING, "ignore_eos": False},
        {"min_new_tokens": 30, "stop_token_ids": COMING, "ignore_eos": False},
        {},
    )
    replies = ask(client, asks)
    for one, reply in zip(asks, replies, strict=True):
        assert list(reply.tokens) == greedy(ORACLE, one.prompt, one.sampling), one
    assert sum(reply.retractions for reply in replies) > 2
    check_retracted_processors(client)
    reasoned = [
        Ask(prompt, {"max_new_tokens": 32, "regex": "(t[0-9]+){16}"}, reasoning=True)
        for prompt in thinking.prompts().values()
    ]
    for one, reply in zip(reasoned, replies := ask(client, reasoned), strict=True):
        right = ORACLE.greedy(one.prompt, 32)
        ruled = right[right.index(thinking.END) + 1 :][:16]
        if thinking.END not in ruled:
            assert list(reply.tokens) == [*right[: right.index(thinking.END) + 1], *ruled, EOS], one
        assert reply.reasoning == right.index(thinking.END) + 1, one
    assert sum(reply.retractions for reply in replies) > 0


def check_retracted_processors(client: Client) -> None:
    """A result that is thrown away with a retraction is not in what a processor remembers."""
    kinds = (processors.Remembers, processors.EveryFifth) * 4
    sampling = {"max_new_tokens": 64, "ignore_eos": True, "custom_params": {"token": 99}}
    asks = [Ask(PROMPT, sampling, processors.text_of(kind)) for kind in kinds]
    replies = ask(client, asks)
    for kind, reply in zip(kinds, replies, strict=True):
        assert list(reply.tokens) == greedy(ORACLE, PROMPT, sampling, kind()), kind
    assert sum(reply.retractions for reply in replies) > 2


def test_plain_decoding_with_overlap_has_no_lag(servers: ServerPool, tiny: Pair) -> None:
    """What speculation is compared with: upstream's penalties lag by a token there."""
    flags = ("--max-running-requests", "64", "--chunked-prefill-size", "64")
    client = servers.client(Launch(tiny.target, arguments=flags))
    asks = asks_of(
        {"repetition_penalty": 0.625},
        {"frequency_penalty": 1.5, **LIFTED},
        {"min_new_tokens": 9, "stop_token_ids": COMING, "ignore_eos": False},
        {},
    )
    many = [Ask((0, 64 + i, *one.prompt[1:]), one.sampling) for one in asks for i in range(9)]
    for one, reply in zip(many, ask(client, many), strict=True):  # prefills come in between
        assert list(reply.tokens) == greedy(ORACLE, one.prompt, one.sampling), one


DRAWN = settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=[
        Phase.generate
    ],  # a failing batch is shown as it is: shrinking takes many servers' time
    suppress_health_check=list(HealthCheck),
)


@DRAWN
@given(st.lists(drawn_asks.asks(), min_size=8, max_size=16))
def test_drawn_requests_get_the_plain_answers(plain: Client, spec: Client, asks: list[Ask]) -> None:
    both(plain, spec, asks)
