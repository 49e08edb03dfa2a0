"""Hypothesis draws requests over everything that changes an answer of a pair.

The tiny pair's greedy tokens hardly ever repeat, so penalties alone change little: some requests
lift a few tokens by a bias so that these come again and again, and some take what ends them from
what would come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.models.tiny.plan import BOS, SPECIALS, VOCABULARY

from kit import processors, thinking
from kit.asking import Ask

MOST_TOKENS = 32
MOST_CHOICES = 3
Prompt = tuple[int, ...]
# Eighths are exact in float32 whatever the order of additions is, so that no tie is broken by it.
EIGHTHS = st.integers(-16, 16).map(lambda n: n / 8)
KINDS = (processors.EveryFifth, processors.Remembers)
PROCESSORS = {kind: processors.text_of(kind) for kind in KINDS}


@dataclass(frozen=True)
class Source:
    """What a pair is asked.

    Attributes:
        coming: the greedy answer to a prompt, so many tokens of it at least.
        text: of tokens of an answer.
        lifted: tokens that a bias of about `lift` makes likely.
        rules: grammars by field.
        reasoning: whether a server of this pair has a reasoning parser.
        seeded: whether it takes seeds; sampled requests are drawn only then, as else there is no
            one right answer.
    """

    prompts: st.SearchStrategy[Prompt]
    coming: Callable[[Prompt, int], Sequence[int]]
    text: Callable[[Sequence[int]], str]
    lifted: tuple[int, ...]
    lift: float
    rules: Mapping[str, Sequence[str]]
    reasoning: bool
    seeded: bool


def _tiny_prompts() -> st.SearchStrategy[Prompt]:
    tokens = st.lists(st.integers(SPECIALS, VOCABULARY - 1), min_size=2, max_size=60)
    any_prompt = tokens.map(lambda drawn: (BOS, *drawn))
    return st.one_of(any_prompt, any_prompt, st.sampled_from(list(thinking.prompts().values())))


LIFTED = (70, 71, 72, 80, 90)
ON_TINY = Source(
    prompts=_tiny_prompts(),
    coming=Oracle(TINY).greedy,
    text=lambda tokens: " ".join(thinking.WORDS[token] for token in tokens),
    lifted=LIFTED,
    lift=28,
    rules=thinking.RULES,
    reasoning=True,
    seeded=True,
)


@st.composite
def asks(draw: st.DrawFn, source: Source = ON_TINY) -> Ask:
    """One request; a sampled one has a seed, so that there is one right answer."""
    prompt = draw(source.prompts)
    new = draw(st.integers(1, MOST_TOKENS))
    sampling: dict[str, Any] = {"max_new_tokens": new, "ignore_eos": draw(st.booleans())}
    others = set(FIELDS) - ENDS - {"grammar"} - (set() if source.seeded else {"sampled"})
    names = draw(st.sets(st.sampled_from(sorted(ENDS)), max_size=2))
    names |= draw(st.sets(st.sampled_from(sorted(others)), max_size=4))
    if draw(st.integers(0, 2)) == 0:
        names.add("grammar")
    for name in sorted(names):
        sampling |= FIELDS[name](draw, source, prompt, new)
    processor = None
    if draw(st.integers(0, 5)) == 0:
        processor = draw(st.sampled_from(sorted(PROCESSORS.values())))
        sampling["custom_params"] = {"token": draw(st.sampled_from(source.lifted))}
    return Ask(
        prompt,
        sampling,
        processor,
        logprobs=draw(st.booleans()),
        reasoning=source.reasoning and draw(st.booleans()),
        stream=draw(st.integers(0, 3)) == 0,
    )


def _stops(draw: st.DrawFn, source: Source, prompt: Prompt, new: int) -> list[int]:
    coming = list(source.coming(prompt, new))[:new]
    return draw(st.lists(st.sampled_from(coming), min_size=1, max_size=3))


def _lifted(draw: st.DrawFn, source: Source, *_: Any) -> dict[str, Any]:
    return {"logit_bias": {str(token): source.lift + draw(EIGHTHS) for token in source.lifted}}


def _stop_strings(draw: st.DrawFn, source: Source, prompt: Prompt, new: int) -> dict[str, Any]:
    coming = source.coming(prompt, new)[:new]

    def some() -> str:
        start = draw(st.integers(0, len(coming) - 1))
        return source.text(coming[start : start + draw(st.integers(1, 2))])

    return {"stop": [one for one in (some() for _ in range(draw(st.integers(1, 3)))) if one]}


def _rule(draw: st.DrawFn, source: Source, *_: Any) -> dict[str, Any]:
    field = draw(st.sampled_from(sorted(source.rules)))
    return {field: draw(st.sampled_from(list(source.rules[field])))}


FIELDS: dict[str, Any] = {
    "frequency": lambda draw, *_: {"frequency_penalty": draw(EIGHTHS)},
    "presence": lambda draw, *_: {"presence_penalty": draw(EIGHTHS)},
    "repetition": lambda draw, *_: {
        "repetition_penalty": draw(st.sampled_from([0.5, 0.75, 1.25, 1.5, 2.0]))
    },
    "bias": _lifted,
    "stop tokens": lambda draw, *rest: {"stop_token_ids": _stops(draw, *rest)},
    "minimum": lambda draw, source, prompt, new: {
        "min_new_tokens": draw(st.integers(1, new)),
        "stop_token_ids": _stops(draw, source, prompt, new),
    },
    "stop strings": _stop_strings,
    "stop regex": lambda draw, *_: {
        "stop_regex": draw(st.sampled_from(["[a-z]+[0-9]*3", "(e|7) ?t", "[.,5] "]))
    },
    "kept stop": lambda draw, *_: {"no_stop_trim": draw(st.booleans())},
    "grammar": _rule,
    "choices": lambda draw, *_: {"n": draw(st.integers(2, MOST_CHOICES))},
    "special tokens": lambda draw, *_: {
        "skip_special_tokens": draw(st.booleans()),
        "spaces_between_special_tokens": draw(st.booleans()),
    },
    "sampled": lambda draw, *_: {
        "temperature": draw(st.sampled_from([1.0, 4.0, 8.0])),
        "sampling_seed": draw(st.integers(0, 2**31)),
    },
    "top-k": lambda draw, *_: {"top_k": draw(st.sampled_from([2, 5, 20]))},
    "top-p": lambda draw, *_: {"top_p": draw(st.sampled_from([0.3, 0.8, 0.95]))},
    "min-p": lambda draw, *_: {"min_p": draw(st.sampled_from([0.01, 0.1, 0.9]))},
}
# Fields that end an answer; each is to meet all the others.
ENDS = {"stop tokens", "minimum", "stop strings", "stop regex"}
