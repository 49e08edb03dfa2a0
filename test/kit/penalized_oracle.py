"""Greedy answers of the tiny pair to requests with penalties, in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from sglang_spec.models.tiny import Oracle
from sglang_spec.models.tiny.plan import EOS

Processor = Callable[[torch.Tensor, list[dict[str, Any]]], torch.Tensor]


def greedy(
    oracle: Oracle,
    prompt: Sequence[int],
    sampling: dict[str, Any],
    processor: Processor | None = None,
) -> list[int]:
    """What a request must get that has penalties, a bias, stop tokens or a minimum length.

    Of tokens with equal logits the first counts, as for the sampler.
    """
    stops = set(sampling.get("stop_token_ids", ()))
    parameters = dict(sampling.get("custom_params", {}))
    output: list[int] = []
    while len(output) < sampling["max_new_tokens"]:
        row = _judged(oracle.logits([*prompt, *output]), output, sampling, stops | {EOS})
        if processor is not None:
            parameters["__req__"] = SimpleNamespace(output_ids=list(output))
            row = processor(torch.tensor([row]), [parameters])[0].tolist()
        output.append(max(range(len(row)), key=lambda token: row[token]))
        if output[-1] in stops | {EOS} and not sampling.get("ignore_eos"):
            break
    return output


def _judged(
    row: list[float], output: Sequence[int], sampling: dict[str, Any], banned: set[int]
) -> list[float]:
    repetition = sampling.get("repetition_penalty", 1.0)
    for token, count in Counter(output).items():
        row[token] -= sampling.get("frequency_penalty", 0.0) * count
        row[token] -= sampling.get("presence_penalty", 0.0)
        row[token] = row[token] * repetition if row[token] < 0 else row[token] / repetition
    if len(output) < sampling.get("min_new_tokens", 0):
        for token in banned:
            row[token] = float("-inf")
    for token, bias in sampling.get("logit_bias", {}).items():
        row[int(token)] += bias
    return row
