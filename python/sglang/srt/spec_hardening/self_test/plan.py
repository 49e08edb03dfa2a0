"""The requests of the self-test: which modes, with which prompts. Equal on every rank."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import Any

from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.spec_hardening.aux_capture import fingerprint_prompts

from .states import candidates

TEXTS = (
    "The capital city of France is Paris. The capital city of Italy is Rome. The capital city of",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,",
    "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return",
)
NEW_TOKENS = 16
# A constraint with one end: after six digits only the end of the text is allowed.
PATTERN = "[0-9]{6}"
TOP_K = 8
# A prompt of more tokens than this is not worth its time. Where a chunk is longer the test has
# chunks of its own, of at least `SMALL_CHUNK` tokens.
LONGEST_PREFILL = {"cpu": 1024}
LONGEST_PREFILL_ELSEWHERE = 16384
SMALL_CHUNK = {"cpu": 64}
SMALL_CHUNK_ELSEWHERE = 1024


@dataclass(frozen=True)
class Case:
    """One step of the test: requests that run together, and what is expected of them."""

    name: str
    prompts: tuple[tuple[int, ...], ...]
    sampling: dict[str, Any] = field(default_factory=dict)
    new_tokens: int = NEW_TOKENS
    # Held against the teacher: "argmax", "top_k", or "pattern" for the grammar.
    check: str = "argmax"
    # It is an error if the cache does not find the prompt, not only a reason to say so.
    expect_hit: bool = False
    # Numbers of draft steps of the cycles in turn; none: as the server would choose.
    steps: tuple[int, ...] = ()
    # Begins without speculation and returns to it.
    crosses: bool = False
    # Prefilled in chunks of so many tokens; 0: short enough to be prefilled at once.
    chunk: int = 0

    @property
    def counts_acceptance(self) -> bool:
        return self.check == "argmax" and not self.steps


def cases(scheduler: Any) -> tuple[list[Case], list[str]]:
    """The cases to run on this server, and the modes left out with the reason."""
    prompts = _prompts(scheduler)
    found, left_out = _one(scheduler, prompts)
    rows = min(len(prompts), scheduler.max_running_requests)
    if rows > 1:
        found.append(Case(f"batch of {rows}", prompts[:rows]))
    threshold = getattr(scheduler.draft_worker, "threshold", None)
    if threshold is not None:
        tokens = threshold.rehearsal_tokens
        found.append(Case("threshold", prompts[:rows], new_tokens=tokens, crosses=True))
    sampling = {"temperature": 0.8, "top_k": TOP_K}
    found.append(Case("sampled", prompts[:rows], sampling, check="top_k"))
    found += _states(scheduler, prompts)
    chunked, reason = _chunked(scheduler, prompts)
    found += chunked
    left_out += reason
    if not _has_grammar(scheduler):
        left_out.append("grammar (no backend)")
    elif not _can_spell_digits(scheduler.tokenizer):
        left_out.append("grammar (the vocabulary has no digits)")
    else:
        found.append(Case("grammar", prompts[1:2], {"regex": PATTERN}, check="pattern"))
    marked = fingerprint_prompts(scheduler.tp_worker.model_runner.model)
    found += [Case(f"fingerprint {n}", (ids,), new_tokens=2) for n, ids in enumerate(marked)]
    return found, left_out


def request(
    scheduler: Any, rid: str, tokens: tuple[int, ...], sampling: dict[str, Any], teacher: int = 0
) -> TokenizedGenerateReqInput:
    """A request as the tokenizer process would send it.

    With `teacher` = n > 0 it asks for the log probabilities of its own last n prompt tokens and
    of the best `TOP_K` at each of them, and generates one token.
    """
    parameters = SamplingParams(**{"temperature": 0.0, **sampling})
    parameters.normalize(scheduler.tokenizer)
    return TokenizedGenerateReqInput(
        rid=rid,
        input_text=None,
        input_ids=array("q", tokens),
        input_embeds=None,
        mm_inputs=None,
        token_type_ids=None,
        sampling_params=parameters,
        return_logprob=teacher > 0,
        logprob_start_len=len(tokens) - teacher - 1 if teacher else -1,
        top_logprobs_num=TOP_K if teacher else 0,
        token_ids_logprob=None,
        stream=False,
        no_logs=True,
    )


def _prompts(scheduler: Any) -> tuple[tuple[int, ...], ...]:
    if scheduler.tokenizer is not None:
        encoded = [tuple(scheduler.tokenizer.encode(text)) for text in TEXTS]
        if all(len(tokens) > 3 for tokens in encoded):
            return tuple(encoded)
    vocabulary = scheduler.model_config.vocab_size
    # Without a tokenizer: spread over the vocabulary, away from the special tokens at its start.
    return tuple(
        tuple(
            (1000 * (row + 1) + 37 * column) % max(vocabulary - 300, 1) + min(200, vocabulary // 4)
            for column in range(24)
        )
        for row in range(len(TEXTS))
    )


def _one(scheduler: Any, prompts: tuple[tuple[int, ...], ...]) -> tuple[list[Case], list[str]]:
    """A prompt alone, and again with a prefix that the cache holds, or why there is none. Whole
    pages are found again, so the prompt is as long as two."""
    greedy = Case("greedy", prompts[:1])
    if scheduler.disable_radix_cache:
        return [greedy], []
    page = int(scheduler.page_size)
    if len(prompts[0]) > page + 1:
        return [greedy, Case("prefix hit", prompts[:1], expect_hit=True)], []
    length = 2 * page + 2
    if length > _room(scheduler):
        return [greedy], [f"prefix hit (no room for a prompt of {length} tokens)"]
    long = (_long(prompts, length),)
    return [Case("greedy", long), Case("prefix hit", long)], []


def _room(scheduler: Any) -> int:
    """The most tokens that a prompt may have."""
    room = min(scheduler.max_req_input_len, scheduler.max_total_num_tokens) - 2 * NEW_TOKENS
    return int(room)


def _states(scheduler: Any, prompts: tuple[tuple[int, ...], ...]) -> list[Case]:
    """Each state that the server switches between, and the switch at every turn."""
    steps = candidates(scheduler)
    if len(steps) < 2:
        return []
    found = [Case(f"{number} draft steps", prompts[:1], steps=(number,)) for number in steps]
    around = (*steps, *reversed(steps))
    return [*found, Case("switch of draft steps", prompts[:2], steps=around, new_tokens=32)]


def _chunked(scheduler: Any, prompts: tuple[tuple[int, ...], ...]) -> tuple[list[Case], list[str]]:
    """A prompt that is prefilled in chunks, or the reason why there is none; neither on a server
    without chunks. A server's chunks of thousands of tokens are cut down for the test, whose name
    then says so: what it runs is the same, but for the width of one forward."""
    chunk = scheduler.chunked_prefill_size
    if chunk is None:
        return [], []
    limit = LONGEST_PREFILL.get(scheduler.device, LONGEST_PREFILL_ELSEWHERE)
    room = _room(scheduler)
    name, length = "chunked prefill", chunk + 8
    if length > min(limit, room):
        step = math.lcm(int(scheduler.page_size), scheduler.truncation_align_size or 1)
        least = SMALL_CHUNK.get(scheduler.device, SMALL_CHUNK_ELSEWHERE)
        chunk = min(chunk, -(-least // step) * step)
        name, length = f"{name} in chunks of {chunk}", 2 * chunk + 8
    if length > room:
        return [], [f"chunked prefill (no room for a prompt of {length} tokens)"]
    return [Case(name, (_long(prompts, length),), new_tokens=4, chunk=chunk)], []


def _long(prompts: tuple[tuple[int, ...], ...], length: int) -> tuple[int, ...]:
    first, *rest = prompts[0]  # what opens a text is not repeated
    return (first, *(rest * (length // len(rest) + 1)))[:length]


def _has_grammar(scheduler: Any) -> bool:
    backend = getattr(scheduler.grammar_manager, "grammar_backend", None)
    return backend is not None and scheduler.tokenizer is not None


def _can_spell_digits(tokenizer: Any) -> bool:
    return bool(tokenizer.decode(tokenizer.encode("1234567890")).find("1234567890") >= 0)
