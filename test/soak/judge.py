"""Whether an outcome is what its request had to get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .case import Case
from .drive import Outcome


@dataclass(frozen=True)
class Difference:
    """A finding.

    `kind`: error (HTTP, a hang, a server that ended), tokens (not those without speculation),
    length (too few, too many, or the wrong finish), impossible (a sampled token that has no
    probability), logprobs (not one for each token), acceptance (other accept lengths than the
    pair has), baseline (the server without speculation is itself wrong).
    """

    kind: str
    number: int
    detail: str

    def __str__(self) -> str:
        return f"request {self.number}: {self.kind}: {self.detail}"


@dataclass(frozen=True)
class Rules:
    """What is known of the served pair.

    Attributes:
        impossible: indices of tokens that no sampling can give.
        lengths: accept lengths of a healthy chain for a prompt and the tokens it is answered, or
            None where they are not known (no oracle, or speculation is off at times).
        overrun: tokens that an aborted request may have past its end. An abort that comes while a
            verify is out finishes the request with all that was accepted, stop token or number of
            new tokens notwithstanding (upstream; `Req.update_finish_state`).
    """

    impossible: Callable[[Sequence[int]], list[int]] | None = None
    lengths: Callable[[Sequence[int], Sequence[int]], list[int]] | None = None
    overrun: int = 8

    def past_its_end(self, outcome: Outcome, right: Sequence[int]) -> bool:
        """Whether an aborted request has its whole answer and a few tokens more."""
        more = len(outcome.tokens) - len(right)
        whole = list(outcome.tokens[: len(right)]) == list(right)
        return outcome.finish.get("type") == "abort" and whole and 0 < more <= self.overrun


def judge(
    case: Case, outcome: Outcome, expected: Sequence[int] | None, rules: Rules
) -> list[Difference]:
    """All findings of one request; `expected` is None for a sampled one."""

    def found(kind: str, detail: str) -> list[Difference]:
        return [Difference(kind, case.number, detail)]

    if outcome.error:
        return found("error", outcome.error)
    tokens = list(outcome.tokens)
    if rules.impossible is not None and (wrong := rules.impossible(tokens)):
        return found("impossible", f"token {tokens[wrong[0]]} at {wrong[0]}")
    if expected is not None:
        right = list(expected)
        left_early = bool(case.leave) and len(tokens) <= len(right)
        differs = tokens != (right[: len(tokens)] if left_early else right)
        if differs and not rules.past_its_end(outcome, right):
            return found("tokens", _parting(tokens, right))
    if case.leave and outcome.finish.get("type") in (None, "abort"):
        return []
    return [
        *(found("length", said) if (said := _wrong_end(case, outcome)) else ()),
        *(found("logprobs", said) if (said := _wrong_logprobs(case, outcome)) else ()),
        *(found("acceptance", said) if (said := _wrong_lengths(case, outcome, rules)) else ()),
    ]


def _parting(tokens: list[int], right: list[int]) -> str:
    pairs = zip(tokens, right, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(tokens), len(right)))
    got = tokens[at] if at < len(tokens) else "the end"
    wanted = right[at] if at < len(right) else "the end"
    return f"at {at}: {got} instead of {wanted} ({len(tokens)} tokens, {len(right)} expected)"


def _wrong_end(case: Case, outcome: Outcome) -> str:
    tokens, finish = outcome.tokens, outcome.finish.get("type")
    stopped = [index for index, token in enumerate(tokens) if token in case.stops]
    if stopped:
        right = stopped[0] == len(tokens) - 1 and finish == "stop"
    else:
        right = len(tokens) == case.new and finish == "length"
    if right:
        return ""
    return f"{len(tokens)} tokens of {case.new}, finish {finish}, stop tokens at {stopped}"


def _wrong_logprobs(case: Case, outcome: Outcome) -> str:
    if not case.logprobs:
        return ""
    chosen = outcome.meta.get("output_token_logprobs") or []
    top = outcome.meta.get("output_top_logprobs") or []
    if (len(chosen), len(top)) != (len(outcome.tokens),) * 2:
        return f"{len(chosen)} and {len(top)} top ones for {len(outcome.tokens)} tokens"
    if [row[1] for row in chosen] != list(outcome.tokens):
        return "they are those of other tokens"
    wrong = [i for i, row in enumerate(chosen) if not (row[0] is not None and row[0] <= 1e-3)]
    return f"at {wrong[0]}: {chosen[wrong[0]][0]}" if wrong else ""


def _wrong_lengths(case: Case, outcome: Outcome, rules: Rules) -> str:
    """A retracted request starts over, a stop token cuts a cycle; such are left out."""
    if rules.lengths is None or not case.greedy or outcome.meta.get("num_retractions"):
        return ""
    if outcome.finish.get("type") != "length" or len(outcome.tokens) < 2:
        return ""
    lengths = rules.lengths(case.prompt, outcome.tokens)
    seen = list(outcome.meta.get("spec_correct_drafts_histogram") or ())
    if sum(seen) != len(lengths):
        return f"{sum(seen)} verify cycles instead of {len(lengths)}"
    width = max(len(seen), *lengths)
    # The last cycle may be cut by the end of the answer.
    counted = [[length - 1 for length in lengths[:-1]].count(n) for n in range(width)]
    padded = seen + [0] * (width - len(seen))
    if sum(abs(a - b) for a, b in zip(padded, counted, strict=True)) > 1:
        return f"cycles by correct drafts {padded}, {counted} and one more expected"
    return ""
