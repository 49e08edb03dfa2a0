"""A plain server and one that speculates are asked for the same, and their answers compared."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sglang_spec.client import Client

from kit.asking import Ask, Reply, ask


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
            assert seen.said() == right.said(), one
            check_logprobs(one, right, seen, tolerance)
            found[place] = seen
    return [found[place] for place in range(len(asks))]


def check_logprobs(one: Ask, right: Reply, seen: Reply, tolerance: float) -> None:
    assert seen.logprobs == pytest.approx(right.logprobs, abs=tolerance), one
    assert len(seen.by_id) == len(right.by_id) and len(seen.top) == len(right.top), one
    for ours, theirs in zip(seen.by_id, right.by_id, strict=True):
        assert ours == pytest.approx(theirs, abs=tolerance), one
    for best, other in zip(seen.top, right.top, strict=True):
        # Which of several tokens with one logprob is listed is not said anywhere.
        assert [p for p, _ in best] == pytest.approx([p for p, _ in other], abs=tolerance), one
