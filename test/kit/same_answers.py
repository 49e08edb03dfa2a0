"""A plain server and one that speculates are asked for the same, and their answers compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sglang_spec.client import Client

from kit.asking import Ask, Reply, ask

# How far apart logprobs may be, both of float32 models.
#
# The tiny pair's logits are exact whatever the order of its sums: of 5,814 logprobs asked for alone
# and together, of a plain server, of chains and of a tree, all were equal to the last bit. What is
# left to round on another host is done to the logits, which are below 128: penalties, bias,
# temperature and the logarithm of the softmax, no more than 16 operations of half a unit each. A
# custom processor lifts a token by thousands, so of larger logprobs the same share is allowed.
SHARE = 16 * 2.0**-24
TINY_TOLERANCE = 128 * SHARE  # 1.2e-4
# The embedded pair's sums of up to 1,536 products go another way in a batch of another width, in
# 30 layers. How much that is was measured without speculation: 4,608 logprobs of 24 requests, alone
# and together, differed by up to 3.05e-5 (median 2.3e-6); with speculation by up to 3.4e-5. Eight
# times that leaves room for more draws and for a repetition penalty, which scales by up to 2.
EMBEDDED_FLOOR = 3.05e-5
EMBEDDED_TOLERANCE = 8 * EMBEDDED_FLOOR  # 2.4e-4


def both(plain: Client, spec: Client, asks: Sequence[Ask], tolerance: float) -> list[Reply]:
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
            check(one, right, seen, tolerance)
            found[place] = seen
    return [found[place] for place in range(len(asks))]


def check(one: Ask, right: Reply, seen: Reply, tolerance: float) -> None:
    """Every choice is the plain one, and its chunks are its beginnings."""
    assert len(seen.choices()) == len(right.choices()) == one.choices, one
    for wanted, choice in zip(right.choices(), seen.choices(), strict=True):
        assert choice.said() == wanted.said(), one
        check_logprobs(one, wanted, choice, tolerance)
        if "temperature" not in one.sampling or "sampling_seed" in one.sampling:
            assert choice.said() == right.said(), one  # one right answer, however often
        assert bool(choice.chunks) == one.stream, one
        trimmed = {"stop", "stop_regex"} & set(one.sampling)
        for tokens, text in choice.chunks:
            assert tokens == wanted.tokens[: len(tokens)], one
            # What a stop string takes away from the end may have been shown, here as without.
            assert trimmed or wanted.text.startswith(text), one


def check_logprobs(one: Ask, right: Reply, seen: Reply, tolerance: float) -> None:
    def near(wanted: Sequence[float]) -> Any:
        return pytest.approx(wanted, abs=tolerance, rel=SHARE)

    assert seen.logprobs == near(right.logprobs), one
    assert len(seen.by_id) == len(right.by_id) and len(seen.top) == len(right.top), one
    for ours, theirs in zip(seen.by_id, right.by_id, strict=True):
        assert ours == near(theirs), one
    for best, other in zip(seen.top, right.top, strict=True):
        # Which of several tokens with one logprob is listed is not said anywhere.
        assert [p for p, _ in best] == near([p for p, _ in other]), one


def unseen_shifts(one: Ask, reply: Reply, tolerance: float) -> list[str]:
    """Kinds of logprobs that may each be taken from the next position, and nobody would notice."""
    unseen = []
    for kind in ("logprobs", "top", "by_id"):
        rows = getattr(reply, kind)
        moved = replace(reply, **{kind: (*rows[1:], rows[0])})
        try:
            check_logprobs(one, reply, moved, tolerance)
        except AssertionError:
            continue
        unseen.append(kind)
    return unseen


def farthest(one: Reply, other: Reply) -> float:
    """The most by which logprobs of two answers with the same tokens differ."""
    assert one.tokens == other.tokens
    places = zip((*one.by_id, one.logprobs), (*other.by_id, other.logprobs), strict=True)
    return max(abs(p - q) for ours, theirs in places for p, q in zip(ours, theirs, strict=True))
