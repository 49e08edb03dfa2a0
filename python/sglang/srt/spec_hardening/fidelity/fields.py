"""The fields of a request whose effect depends on what it has put out so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req


@dataclass(frozen=True)
class Fields:
    """Penalties and the ban of stop tokens of one request.

    Attributes:
        frequency: taken off a logit for every time its token was put out.
        presence: taken off a logit once, if its token was put out at all.
        repetition: what a positive logit is divided by, and a negative one multiplied with, if its
            token was put out.
        min_new_tokens: stop tokens are banned while fewer tokens were put out.
        stop_tokens: what is banned then, in increasing order.
    """

    frequency: float = 0.0
    presence: float = 0.0
    repetition: float = 1.0
    min_new_tokens: int = 0
    stop_tokens: tuple[int, ...] = ()


PLAIN = Fields()


def fields_of(req: Req) -> Fields | None:
    """The fields of a request, or None where it has none and must be left alone."""
    asked = req.sampling_params
    found = Fields(
        asked.frequency_penalty,
        asked.presence_penalty,
        asked.repetition_penalty,
        asked.min_new_tokens,
        _stop_tokens(req) if asked.min_new_tokens > 0 else (),
    )
    return None if found == PLAIN else found


def _stop_tokens(req: Req) -> tuple[int, ...]:
    """What ends the request by itself; a server may run without a tokenizer."""
    tokens = set(req.sampling_params.stop_token_ids or ()) | set(req.eos_token_ids or ())
    if req.tokenizer is not None:
        tokens |= set(req.tokenizer.additional_stop_token_ids or ())
        tokens.add(req.tokenizer.eos_token_id)
    return tuple(sorted(token for token in tokens if token is not None))
