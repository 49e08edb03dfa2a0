"""Requests whose answers depend on all that they put out before, across a batch threshold.

A token that a plain step or a verify counts once too often, or not at all, is another answer.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from sglang_spec.client import Client

from .asking import Ask
from .crossing import COUNTED, ORACLE, Crossing, prompt
from .penalized_oracle import greedy
from .penalty_fields import PENALTIES
from .same_answers import TINY_TOLERANCE, both

# The last is filled in with tokens that would come.
COUNTING = (*PENALTIES, {"min_new_tokens": 0})
# What these penalties decide here is far enough apart for bfloat16.
PROMPT = (0, *range(70, 110))


@dataclass(frozen=True)
class Counted:
    """A greedy request; `rid` where it is to be aborted."""

    prompt: tuple[int, ...]
    sampling: dict[str, Any]
    rid: str | None = None


def drawn(dice: random.Random, number: int, tokens: Sequence[int], longest: int) -> Counted:
    """One request of the kinds of `COUNTING`, in turn."""
    new = dice.randrange(8, longest)
    fields = {"ignore_eos": True, **COUNTING[number % len(COUNTING)]}
    if "min_new_tokens" in fields:
        coming = ORACLE.greedy(tokens, 12)
        stops = coming[dice.randrange(6) :]
        fields = {"min_new_tokens": dice.randrange(1, new), "stop_token_ids": stops}
    return Counted(tuple(tokens), {"max_new_tokens": new, "temperature": 0, **fields})


def check_penalties(
    server: Crossing,
    seed: int,
    count: int = 24,
    longest: int = 60,
    only: Sequence[int] | None = None,
) -> int:
    """They come at random, some aborted, some on a finished one's text; all is exact.

    `only`: the prompt of all of them; then they come at random, and that is all.
    Returns how often one of them was retracted.
    """
    dice = random.Random(seed)
    asks = []
    for number in range(count):
        tokens = only or prompt(seed * 1000 + number, dice.randrange(3, 150))
        one = drawn(dice, number, tokens, longest)
        if number % 6 == 5 and only is None:
            sampling = {**one.sampling, "max_new_tokens": 400, "ignore_eos": True}
            one = replace(one, sampling=sampling, rid=f"abort-{seed}-{number}")
        asks.append(one)

    def answer(number: int) -> list[tuple[Counted, list[int], int]]:
        client, one = Client(server.server.url), asks[number]
        done = [(one, *_answer(client, one))]
        if number % 3 == 0 and only is None:
            longer = (*one.prompt, *done[0][1], 99, 100 + number)
            again = replace(one, prompt=longer)
            done.append((again, *_answer(client, again)))
        client.close()
        return done

    with ThreadPoolExecutor(8) as pool:
        futures = []
        for number in range(count):
            futures.append(pool.submit(answer, number))
            time.sleep(dice.random() * 0.05)
        found = [one for future in futures for one in future.result()]
    for one, tokens, _ in found:
        cut = one.sampling if one.rid is None else {**one.sampling, "max_new_tokens": len(tokens)}
        assert tokens == greedy(ORACLE, one.prompt, cut), one
    return sum(retractions for _, _, retractions in found)


def _answer(client: Client, one: Counted) -> tuple[list[int], int]:
    """Tokens, and how often it was retracted."""
    body: dict[str, Any] = {"input_ids": list(one.prompt), "sampling_params": one.sampling}
    timer = threading.Timer(0.1, lambda: client.post("/abort_request", rid=one.rid))
    if one.rid is not None:
        body["rid"] = one.rid
        timer.start()
    reply = client.post("/generate", **body)
    assert reply.status_code == 200, reply.text[:500]
    if one.rid is not None:
        timer.join()
    said = reply.json()
    return said["output_ids"], said["meta_info"].get("num_retractions", 0)


def check_penalties_until(
    server: Crossing, seed: int, enough: Callable[[dict[str, int]], bool], **options: Any
) -> int:
    """`check_penalties`, again until what was counted since the first is `enough`."""
    before, retractions = server.info(), 0
    for turn in range(20):
        retractions += check_penalties(server, seed + 100 * turn, **options)
        after = server.info()
        if enough({name: after[name] - before[name] for name in COUNTED}):
            return retractions
    raise AssertionError(f"not enough of these in 20 turns: {before}, later {after}")


def check_drawn(plain: Client, server: Crossing, asks: Sequence[Ask]) -> None:
    """Anything that a request can ask for, also logprobs: as the plain server answers."""
    both(plain, server.client, asks, TINY_TOLERANCE)
