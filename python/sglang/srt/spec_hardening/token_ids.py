"""Token ids that a client sends must be in the vocabulary.

The model looks an id up without a check: one past the end is an IndexError on the CPU and a
device-side assert on a GPU, and either ends the rank, and with it everybody's requests. Called by
`TokenizerManager._validate_one_request`, so for HTTP, gRPC, Engine; HTTP answers 400.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def check(request: Any, vocab_size: int) -> None:
    """ValueError if the prompt, or the stop tokens of `min_new_tokens`, of one request hold an id
    that the model has no row for.

    Placeholders of media and tokens that a LoRA adapter adds lie outside on purpose, so the prompts
    of requests with those pass. Stop tokens without `min_new_tokens` are only compared.
    """
    if not (request.contains_mm_input() or getattr(request, "lora_path", None)):
        _check("input_ids", request.input_ids, vocab_size)
    sampling = request.sampling_params
    if isinstance(sampling, dict) and sampling.get("min_new_tokens"):
        _check("sampling_params.stop_token_ids", sampling.get("stop_token_ids"), vocab_size)


def _check(field: str, ids: Sequence[int] | None, vocab_size: int) -> None:
    if ids is None or len(ids) == 0 or (min(ids) >= 0 and max(ids) < vocab_size):
        return
    place, token = next((n, one) for n, one in enumerate(ids) if not 0 <= one < vocab_size)
    raise ValueError(
        f"{field}: token id {token} at position {place} is not in the vocabulary of {vocab_size} "
        f"tokens; valid ids are 0 to {vocab_size - 1}"
    )
