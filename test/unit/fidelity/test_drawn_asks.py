"""What Hypothesis draws for the differential tests has everything in it that a request may have."""

from __future__ import annotations

from itertools import combinations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kit import drawn_asks
from kit.asking import GRAMMARS, Ask

STATE = ("frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens")
ENDS = ("stop", "stop_regex", "stop_token_ids", *sorted(GRAMMARS))


def fields(ask: Ask) -> set[str]:
    also = {
        "stream": ask.stream,
        "logprobs": ask.logprobs,
        "reasoning": ask.reasoning,
        "processor": ask.processor is not None,
        "ignoring EOS": bool(ask.sampling["ignore_eos"]),
    }
    return set(ask.sampling) | {name for name, on in also.items() if on}


def drawn() -> list[Ask]:
    """As many requests as the drawn tests of six modes have in a full run."""
    found: list[Ask] = []

    @settings(
        max_examples=150,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(drawn_asks.asks(), min_size=8, max_size=48))
    def draw(asks: list[Ask]) -> None:
        found.extend(asks)

    draw()
    return found


def test_every_end_is_drawn_with_every_field_that_counts_tokens() -> None:
    seen = {pair for ask in drawn() for pair in combinations(sorted(fields(ask)), 2)}
    others = (*STATE, "logit_bias", "ignoring EOS", "n", "stream", "temperature", "processor")
    wanted = {tuple(sorted((end, other))) for end in ENDS for other in others}
    wanted |= {tuple(sorted(("n", other))) for other in (*STATE, "stream", "logprobs", "processor")}
    assert wanted - seen == set()
