"""Hypothesis draws requests over everything that changes an answer of the tiny pair.

Its greedy tokens hardly ever repeat, so penalties alone change little: some requests lift a few
tokens by a bias so that these come again and again, and some take stop tokens from what would come.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.models.tiny.plan import BOS, SPECIALS, VOCABULARY

from kit import processors
from kit.asking import Ask

ORACLE = Oracle(TINY)
MOST_TOKENS = 32
LIFTED = (70, 71, 72, 80, 90)
# Eighths are exact in float32 whatever the order of additions is, so that no tie is broken by it.
EIGHTHS = st.integers(-16, 16).map(lambda n: n / 8)
KINDS = (processors.EveryFifth, processors.Remembers)
PROCESSORS = {kind: processors.text_of(kind) for kind in KINDS}


@st.composite
def prompts(draw: st.DrawFn) -> tuple[int, ...]:
    tokens = st.lists(st.integers(SPECIALS, VOCABULARY - 1), min_size=2, max_size=60)
    return (BOS, *draw(tokens))


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    """One request; a sampled one has a seed, so that there is one right answer."""
    prompt = draw(prompts())
    new = draw(st.integers(1, MOST_TOKENS))
    sampling: dict[str, Any] = {"max_new_tokens": new, "ignore_eos": draw(st.booleans())}
    chosen = draw(st.sets(st.sampled_from(sorted(FIELDS)), max_size=4))
    for name in sorted(chosen):
        sampling |= FIELDS[name](draw, prompt, new)
    processor = None
    if draw(st.integers(0, 5)) == 0:
        processor = draw(st.sampled_from(sorted(PROCESSORS.values())))
        sampling["custom_params"] = {"token": draw(st.sampled_from(LIFTED))}
    return Ask(prompt, sampling, processor, logprobs=draw(st.booleans()))


def _stops(draw: st.DrawFn, prompt: tuple[int, ...], new: int) -> list[int]:
    coming = ORACLE.greedy(prompt, new)
    return draw(st.lists(st.sampled_from(coming), min_size=1, max_size=3))


def _lifted(draw: st.DrawFn, *_: Any) -> dict[str, Any]:
    return {"logit_bias": {str(token): 28 + draw(EIGHTHS) for token in LIFTED}}


def _stop_string(draw: st.DrawFn, prompt: tuple[int, ...], new: int) -> dict[str, Any]:
    words = [f"t{token - SPECIALS}" for token in ORACLE.greedy(prompt, new)]
    start = draw(st.integers(0, len(words) - 1))
    return {"stop": [" ".join(words[start : start + draw(st.integers(1, 2))])]}


FIELDS: dict[str, Any] = {
    "frequency": lambda draw, *_: {"frequency_penalty": draw(EIGHTHS)},
    "presence": lambda draw, *_: {"presence_penalty": draw(EIGHTHS)},
    "repetition": lambda draw, *_: {
        "repetition_penalty": draw(st.sampled_from([0.5, 0.75, 1.25, 1.5, 2.0]))
    },
    "bias": _lifted,
    "stop tokens": lambda draw, *rest: {"stop_token_ids": _stops(draw, *rest)},
    "minimum": lambda draw, prompt, new: {
        "min_new_tokens": draw(st.integers(1, new)),
        "stop_token_ids": _stops(draw, prompt, new),
    },
    "stop string": _stop_string,
    "kept stop": lambda draw, *_: {"no_stop_trim": draw(st.booleans())},
    "sampled": lambda draw, *_: {
        "temperature": draw(st.sampled_from([1.0, 4.0, 8.0])),
        "sampling_seed": draw(st.integers(0, 2**31)),
    },
    "top-k": lambda draw, *_: {"top_k": draw(st.sampled_from([2, 5, 20]))},
    "top-p": lambda draw, *_: {"top_p": draw(st.sampled_from([0.3, 0.8, 0.95]))},
    "min-p": lambda draw, *_: {"min_p": draw(st.sampled_from([0.01, 0.1, 0.9]))},
}
