"""A seeded draw among filtered tokens: noise belongs to a token, and not to its rank.

Upstream sorts the probabilities of a whole batch as soon as one request in it has a top-k, a top-p
or a min-p (each greedy one has a top-k of 1), and gives noise to places. So the same request with
the same seed got another token where another request beside it had a filter, and the batches of a
speculating server are not those of a plain one.

Called by: `srt/layers/sampler.py` (patch `seeded-draws-by-token`).
"""

from __future__ import annotations

import torch


def rank_drawn(
    logprobs: torch.Tensor, tokens: torch.Tensor, seeds: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Which place of each row is drawn: the one with the token that is drawn without sorting.

    Args:
        logprobs: [rows, vocabulary], in any order; -inf for what is left out.
        tokens: int64 [rows, vocabulary], whose they are.
        seeds, positions: [rows].

    Returns:
        int64 [rows, 1].
    """
    from sglang.srt.layers.sampler import multinomial_with_seed

    by_token = torch.empty_like(logprobs).scatter_(1, tokens, logprobs)
    drawn: torch.Tensor = multinomial_with_seed(by_token, seeds, positions)
    return (tokens == drawn).to(torch.int8).argmax(dim=1, keepdim=True)
