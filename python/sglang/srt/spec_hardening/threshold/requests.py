"""Fields of a request that a server with a batch threshold cannot honour, refused by name.

Called by `TokenizerManager._validate_one_request` (patch `batch-threshold-refusals`), so for HTTP,
gRPC and Engine; HTTP answers 400. Imports no torch.
"""

from __future__ import annotations

from typing import Any

from .settings import FLAG

# Each with the value that asks for nothing.
NEUTRAL = {
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_new_tokens": 0,
}


def check(request: Any, threshold: int | str | None) -> None:
    """ValueError if one request asks for a count of its own tokens and a threshold is set.

    What a plain step and a verify count of the same request has not been shown to add up, and a
    penalty that is nearly right would be worse than none.
    """
    sampling = request.sampling_params
    if threshold is None or not isinstance(sampling, dict):
        return
    for field, neutral in NEUTRAL.items():
        value = sampling.get(field)
        if value is not None and value != neutral:
            raise ValueError(
                f"sampling_params.{field}: {value} cannot be honoured by a server with {FLAG} "
                f"{threshold}; leave the field out, or the flag"
            )
