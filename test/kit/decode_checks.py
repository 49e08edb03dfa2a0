"""What a greedy EAGLE3 server of a tiny pair must do, held against the pair's oracle.

The pair's margins are wide enough for bfloat16 to be exact in every batch shape, and its oracle is
what decoding without speculation gives, so no second server is needed. Each check raises
AssertionError; all are the same on a GPU and on the CPU.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sglang_spec.client import Answer, Client
from sglang_spec.models.tiny import Oracle
from sglang_spec.models.tiny.oracle import faults
from sglang_spec.models.tiny.plan import BOS, SPECIALS, VOCABULARY


def prompts(count: int, seed: int, longest: int = 400, shortest: int = 3) -> list[list[int]]:
    """Random prompts of ordinary tokens behind BOS."""
    dice = random.Random(seed)
    return [
        [
            BOS,
            *(dice.randrange(SPECIALS, VOCABULARY) for _ in range(dice.randint(shortest, longest))),
        ]
        for _ in range(count)
    ]


def equal_to_oracle(
    oracle: Oracle, asked: Sequence[Sequence[int]], answers: Sequence[Answer], new: int
) -> None:
    wrong = [
        index
        for index, (prompt, answer) in enumerate(zip(asked, answers, strict=True))
        if list(answer.tokens) != oracle.greedy(prompt, new)
    ]
    assert not wrong, f"requests {wrong} of {len(asked)} differ from decoding without speculation"


def batch(client: Client, oracle: Oracle, size: int, new: int = 48) -> None:
    """`size` requests at once, speculated, with the tokens of no speculation."""
    asked = prompts(size, seed=size)
    answers = client.generate_batch(asked, new, ignore_eos=True)
    equal_to_oracle(oracle, asked, answers, new)
    assert all(answer.cycles > 0 for answer in answers)


def accept_lengths(client: Client, oracle: Oracle, steps: int, new: int = 64) -> None:
    """A chain's accept lengths, cycle by cycle; one cycle may be cut short at the end."""
    (prompt,) = prompts(1, seed=7)
    answer = client.generate(prompt, new, ignore_eos=True)
    lengths = oracle.accept_lengths(prompt, new, steps)
    drafts = [length - 1 for length in lengths]
    counted = [drafts[:-1].count(n) for n in range(steps + 1)]
    seen = list(answer.correct_drafts) + [0] * (steps + 1 - len(answer.correct_drafts))
    assert sum(seen) == len(lengths), (seen, counted)
    assert sum(abs(a - b) for a, b in zip(seen, counted, strict=True)) <= 1, (seen, counted)


def mean_accept_length(client: Client, atleast: float, new: int = 64) -> None:
    """A tree's accept length; on the pair whose draft is always right it is steps + 1."""
    (prompt,) = prompts(1, seed=7)
    answer = client.generate(prompt, new, ignore_eos=True)
    mean = (len(answer.tokens) - 1) / answer.cycles
    assert mean >= atleast, f"accept length {mean:.2f}, at least {atleast} expected"


def prefix_hit_and_chunks(client: Client, oracle: Oracle, chunk: int) -> None:
    """A prompt of several prefill chunks, then one that goes on where its answer stands."""
    client.flush_cache()
    start = prompts(1, seed=3, longest=3 * chunk, shortest=2 * chunk + 60)[0]
    first = client.generate(start, 32, ignore_eos=True)
    equal_to_oracle(oracle, [start], [first], 32)
    longer = [*start, *first.tokens[:9]]
    again = client.generate(longer, 32, ignore_eos=True)
    equal_to_oracle(oracle, [longer], [again], 32)
    assert again.meta["cached_tokens"] > 2 * chunk
    # A hole in the draft's KV cache would leave the tokens right and lower the acceptance.
    client.flush_cache()
    fresh = client.generate(longer, 32, ignore_eos=True)
    assert fresh.meta["cached_tokens"] == 0
    assert fresh.tokens == again.tokens
    assert fresh.correct_drafts == again.correct_drafts


def mixed_sampling(client: Client, oracle: Oracle, size: int, new: int = 40) -> None:
    """Greedy and sampled requests in one batch: the greedy ones exact, the others possible."""
    asked = prompts(size, seed=100 + size, longest=60)
    sampling = [
        {"temperature": 0} if index % 2 else {"temperature": 4.0, "top_k": 50, "top_p": 0.95}
        for index in range(size)
    ]
    reply = client.post(
        "/generate",
        input_ids=asked,
        sampling_params=[{"max_new_tokens": new, "ignore_eos": True, **s} for s in sampling],
    )
    reply.raise_for_status()
    tokens: list[list[int]] = [body["output_ids"] for body in reply.json()]
    different = 0
    for index, (prompt, found) in enumerate(zip(asked, tokens, strict=True)):
        assert len(found) == new
        if index % 2:
            assert found == oracle.greedy(prompt, new), f"greedy request {index} is disturbed"
        else:
            assert not faults(found), f"request {index} drew a token of probability e^-24"
            different += found != oracle.greedy(prompt, new)
    assert different > 0, "no request was sampled at temperature 4"


def staggered(client: Client, oracle: Oracle, count: int, at_once: int) -> None:
    """Requests of all lengths that come and go on their own."""
    dice = random.Random(count)
    asked = prompts(count, seed=200 + count, longest=300)
    lengths = [dice.randint(1, 60) for _ in asked]

    def one(pair: tuple[list[int], int]) -> Answer:
        return client.generate(pair[0], pair[1], ignore_eos=True)

    with ThreadPoolExecutor(at_once) as pool:
        answers = list(pool.map(one, zip(asked, lengths, strict=True)))
    for prompt, length, answer in zip(asked, lengths, answers, strict=True):
        equal_to_oracle(oracle, [prompt], [answer], length)


def aborts(client: Client, oracle: Oracle, size: int, new: int = 200, pause: float = 0.5) -> None:
    """Half of a batch is aborted on its way; the rest stays exact and all KV comes back.

    `pause` is the time before the abort, s: less than the server needs for 1900 tokens. If it was
    not, because the host let the client wait, it is halved and all is done again.
    """
    assert any(_aborted(client, oracle, size, new, pause / 2**n) for n in range(8)), "not aborted"


def _aborted(client: Client, oracle: Oracle, size: int, new: int, pause: float) -> bool:
    """Whether all were aborted before they came to their ends."""
    asked = prompts(size, seed=300 + size, longest=80)
    doomed = [f"doomed-{time.monotonic_ns()}-{index}" for index in range(0, size, 2)]

    def one(index: int) -> Answer:
        options: dict[str, Any] = {"ignore_eos": True}
        if index % 2 == 0:
            return client.generate(asked[index], 1900, rid=[doomed[index // 2]], **options)
        return client.generate(asked[index], new, **options)

    with ThreadPoolExecutor(size) as pool:
        running = [pool.submit(one, index) for index in range(size)]
        time.sleep(pause)
        for rid in doomed:
            client.post("/abort_request", rid=rid).raise_for_status()
        answers = [future.result() for future in running]
    equal_to_oracle(oracle, asked[1::2], answers[1::2], new)
    for prompt, answer in zip(asked[0::2], answers[0::2], strict=True):
        assert list(answer.tokens) == oracle.greedy(prompt, len(answer.tokens))
    client.flush_cache(120)  # refused while anything still holds KV
    return all(answer.finish == "abort" for answer in answers[0::2])


def retraction(
    client: Client, oracle: Oracle, groups: int, size: int, new: int, pause: float
) -> None:
    """More than the pool holds: requests are taken out and come back, and nothing shows it.

    Each group comes while the earlier ones decode: the scheduler counts a new request with all its
    tokens and a running one, unless it ignores the end token, with a part of them. So it admits
    more than can end. `pause`, s, is what they come apart; whether they meet is also a matter of
    the host's other work, so others are tried too.
    """
    shares = (1, 0.5, 0.25, 0, 1, 0.5, 0.25, 0)
    assert any(_retracted(client, oracle, groups, size, new, pause * one) for one in shares), (
        "nothing was retracted"
    )


def _retracted(
    client: Client, oracle: Oracle, groups: int, size: int, new: int, pause: float
) -> int:
    """How many times a request was taken out."""
    asked = [prompts(size, seed=400 + number, longest=60, shortest=50) for number in range(groups)]

    def one(group: list[list[int]]) -> list[Answer]:
        return client.generate_batch(group, new)  # the pair never says the end token

    with ThreadPoolExecutor(groups) as pool:
        running = []
        for group in asked:
            running.append(pool.submit(one, group))
            time.sleep(pause)
        answers = [future.result() for future in running]
    for group, answered in zip(asked, answers, strict=True):
        equal_to_oracle(oracle, group, answered, new)
    client.flush_cache(120)
    return sum(answer.meta["num_retractions"] for answered in answers for answer in answered)
