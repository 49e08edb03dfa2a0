"""The same answers with speculation as without it, for everything that a request can ask for.

On the tiny pair every request has one right answer, sampled ones too: they have seeds, and a seeded
draw depends on seed and position only. The plain server is the judge, and greedy answers are held
to the oracle as well.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kit import drawn_asks, fidelity_table, lossless, processors, tampered
from kit.asking import Ask, Reply, ask
from kit.penalized_oracle import greedy
from kit.penalty_fields import LIFTED, PENALTIES
from kit.servers import LOGS, ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair, tiny_pair
from sglang_spec.models.tiny import TINY, TINY_HALF, Oracle, Plan
from sglang_spec.server import Launch, Server, Speculation

ORACLE = Oracle(TINY)
PROMPT = (0, *range(70, 110))
COMING = ORACLE.greedy(PROMPT, 40)
# With overlap scheduling plain decoding learns of each token one step late, so its penalties and
# processors are no judge. Speculation on a CPU runs without overlap in any case.
PLAIN = (
    *("--max-running-requests", "64", "--enable-custom-logit-processor"),
    *("--enable-deterministic-inference", "--disable-overlap-schedule"),
)
# Steps, topk and drafted tokens. The pair with half a vocabulary accepts 1 to 4 tokens a step.
MODES: dict[str, tuple[Plan, tuple[int, int, int]]] = {
    "chain": (TINY, (3, 1, 4)),
    "some-rejected": (TINY_HALF, (3, 1, 4)),
    "tree": (TINY_HALF, (3, 4, 10)),
    "one-step": (TINY, (1, 1, 2)),
    "two-steps": (TINY, (2, 1, 3)),
    "wide-tree": (TINY, (4, 8, 24)),
    "adaptive": (TINY_HALF, (3, 1, 4)),
}
# By running requests: a batch goes through all of these as its requests end.
ADAPTIVE = {
    "1": {"candidate_steps": [3]},
    "3": {"candidate_steps": [1]},
    "5": {"candidate_steps": [0]},
    "9": {"candidate_steps": [2]},
}
# Left to the full suite for their time; the tree has a draft with rejections as well.
SLOW = ("some-rejected", "one-step", "two-steps", "wide-tree", "adaptive")
# Of logprobs. Both are float32, but the sums of a verify run over other widths than those of a
# decode, and the tiny pair's gates make much of the last bits: 6.5e-4 was seen. A penalty that is
# counted once too often moves a logprob by hundredths.
TOLERANCE = 2e-3


def launch(mode: str, *more: str) -> Launch:
    plan, numbers = MODES[mode]
    pair = tiny_pair(plan)
    flags = (*PLAIN, "--skip-speculative-self-test", *more)
    return Launch(pair.target, Speculation(pair.draft, *numbers), "float32", flags)


@pytest.fixture
def plain(servers: ServerPool, tiny: Pair) -> Client:
    """Asked for by each test anew: with many modes the pool stops what was not asked for lately."""
    return servers.client(Launch(tiny.target, dtype="float32", arguments=PLAIN))


@pytest.fixture(
    scope="module",
    params=[pytest.param(m, marks=pytest.mark.full) if m in SLOW else m for m in MODES],
)
def mode(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def spec(servers: ServerPool, mode: str, tmp_path_factory: pytest.TempPathFactory) -> Client:
    more: tuple[str, ...] = ()
    if mode == "adaptive":
        config = tmp_path_factory.mktemp("adaptive") / "steps.json"
        config.write_text(json.dumps(ADAPTIVE))
        more = ("--speculative-adaptive", "--speculative-adaptive-config", str(config))
    return servers.client(launch(mode, *more))


def both(plain: Client, spec: Client, asks: Sequence[Ask]) -> list[Reply]:
    """Ask both servers for the same; the replies of the one that speculates.

    Greedy requests go apart: in a batch that samples, the plain sampler takes any of several best
    tokens, else the first.
    """
    found: dict[int, Reply] = {}
    for sampled in (False, True):
        some = [
            (i, one) for i, one in enumerate(asks) if ("temperature" in one.sampling) == sampled
        ]
        each = [one for _, one in some]
        if not each:
            continue
        for client in (plain, spec):  # what other tests left cached decides how wide a prefill is
            client.flush_cache()
        replies = zip(some, ask(plain, each), ask(spec, each), strict=True)
        for (place, one), right, seen in replies:
            assert seen.said() == right.said(), one
            check_logprobs(one, right, seen)
            found[place] = seen
    return [found[place] for place in range(len(asks))]


def check_logprobs(one: Ask, right: Reply, seen: Reply) -> None:
    assert seen.logprobs == pytest.approx(right.logprobs, abs=TOLERANCE), one
    assert len(seen.by_id) == len(right.by_id) and len(seen.top) == len(right.top), one
    for ours, theirs in zip(seen.by_id, right.by_id, strict=True):
        assert ours == pytest.approx(theirs, abs=TOLERANCE), one
    for best, other in zip(seen.top, right.top, strict=True):
        # Which of several tokens with one logprob is listed is not said anywhere.
        assert [p for p, _ in best] == pytest.approx([p for p, _ in other], abs=TOLERANCE), one


def asks_of(*sampling: dict[str, Any], **common: Any) -> list[Ask]:
    base = {"max_new_tokens": 40, "ignore_eos": True}
    return [Ask(PROMPT, {**base, **one}, **common) for one in sampling]


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


def test_answers_end_inside_an_accepted_run(plain: Client, spec: Client) -> None:
    words = [f"t{token - 64}" for token in COMING]
    cut = [{"max_new_tokens": n} for n in range(1, 10)]
    ids = [{"stop_token_ids": [token], "ignore_eos": False} for token in COMING[:9]]
    strings = [{"stop": [f"{a} {b}"]} for a, b in pairwise(words[:10])]
    kept = [{**one, "no_stop_trim": True} for one in strings]
    regexes = [{"stop_regex": f"{a} t[0-9]+ "} for a in words[:6]]
    asks = asks_of(*cut, *ids, *strings, *kept, *regexes, logprobs=True)
    replies = both(plain, spec, asks)
    assert {len(reply.tokens) for reply in replies} >= set(range(1, 10))


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


@pytest.mark.parametrize("field", ["regex", "ebnf"])
def test_grammars_end_inside_an_accepted_run(plain: Client, spec: Client, field: str) -> None:
    words = [f"t{token - 64}" for token in COMING]  # a grammar sees no blanks between them
    texts = {
        "regex": [*("".join(words[:n]) for n in range(1, 7)), f"{words[0]}(t[0-9]+)*"],
        "ebnf": [f'root ::= "{"".join(words[:n])}"' for n in (2, 5)],
    }
    asks = [Ask(PROMPT, {"max_new_tokens": 24, field: text}) for text in texts[field]]
    both(plain, spec, [*asks, *asks_of({"repetition_penalty": 1.5}, {})])


def test_each_choice_of_several_is_the_plain_one(plain: Client, spec: Client) -> None:
    def choices(client: Client) -> Any:
        sampling = {"n": 3, "max_new_tokens": 16, "temperature": 4.0, "sampling_seed": 1}
        penalty = {"frequency_penalty": 1.0, **LIFTED}
        reply = client.post("/generate", input_ids=list(PROMPT), sampling_params=sampling | penalty)
        return [one["output_ids"] for one in reply.json()]

    assert choices(spec) == choices(plain)


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


# Upstream's own test mode; the environment variables for it were read when the zygote started.
RETRACTING = """
from sglang.srt.managers import scheduler
scheduler.TEST_RETRACT, scheduler.TEST_RETRACT_INTERVAL = True, 4
"""


def test_a_retracted_request_gets_the_same_answer(servers: ServerPool, tmp_path: Path) -> None:
    """Retracted every few steps, prefilled again with its output, and penalized as before."""
    assert servers.zygote is not None
    spawn = tampered.spawner(servers.zygote, tmp_path / "program.py", RETRACTING)
    with Server(launch("chain"), LOGS / "test-fidelity-retracted.log", spawn=spawn) as server:
        check_retracted(Client(server.wait_ready().url))


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


@pytest.mark.full
@settings(DRAWN, max_examples=150, derandomize=False, print_blob=True)
@given(st.lists(drawn_asks.asks(), min_size=8, max_size=48))
def test_many_drawn_requests_get_the_plain_answers(
    plain: Client, spec: Client, asks: list[Ask]
) -> None:
    both(plain, spec, asks)


RECORD: dict[str, Any] = json.loads(
    (Path(fidelity_table.__file__).with_name("plain_fidelity.json")).read_text()
)["cases"]


# What was never wrong is asked by the tests of the OpenAI client too, so here only in full runs.
@pytest.mark.parametrize(
    "case",
    [
        *fidelity_table.FAULTY,
        *(pytest.param(case, marks=pytest.mark.full) for case in fidelity_table.EQUAL),
    ],
)
def test_speculation_does_not_change_the_embedded_pairs_answer(
    servers: ServerPool, embedded: Pair, case: str
) -> None:
    plain, spec = (servers.client(launch) for launch in lossless.launches(embedded).values())
    assert fidelity_table.answer(spec, case) == fidelity_table.answer(plain, case)


@pytest.mark.parametrize("case", fidelity_table.CASES)
def test_plain_upstream_changed_it(case: str) -> None:
    """The record of the same requests to plain SGLang, made by `python -m kit.plain_fidelity`."""
    assert RECORD[case]["equal"] == (case in fidelity_table.EQUAL)
