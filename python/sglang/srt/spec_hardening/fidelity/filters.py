"""Top-k, top-p and min-p of a verify step, as the plain sampler applies them.

Upstream's verify takes the k best first, scales what is left up to one, and then applies top-p, and
it leaves min-p out. The plain sampler asks both questions of the same distribution, unless min-p is
wanted and its backend is flashinfer, which then does scale in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo


def keep(probs: torch.Tensor, info: SamplingBatchInfo, nodes: int) -> torch.Tensor:
    """The distribution to sample from at each node.

    Args:
        probs: float32 [requests * nodes, vocabulary], after temperature; may be changed.
        info: parameters of the requests.

    Returns:
        The same shape; each row sums to 1.
    """
    from sglang.kernels.ops.sampling.renorm import top_k_renorm_prob, top_p_renorm_prob
    from sglang.srt.runtime_context import get_exec

    scaled_between = info.need_min_p_sampling and get_exec().kernel.sampling_backend == "flashinfer"
    for name in ("k", "p") if scaled_between else ("p", "k"):
        if name == "k" and info.need_top_k_sampling:
            probs = top_k_renorm_prob(probs, info.top_ks.repeat_interleave(nodes, dim=0))
        if name == "p" and info.need_top_p_sampling:
            probs = top_p_renorm_prob(probs, info.top_ps.repeat_interleave(nodes, dim=0))
    if info.need_min_p_sampling:
        probs = keep_min_p(probs, info.min_ps.repeat_interleave(nodes, dim=0))
    return probs


def keep_min_p(probs: torch.Tensor, min_ps: torch.Tensor) -> torch.Tensor:
    """Leave out what has less than `min_p` of the likeliest token's probability.

    Args:
        probs: [rows, vocabulary].
        min_ps: [rows].

    Returns:
        The rest, each row scaled to sum 1. The likeliest token is always in it.
    """
    least = probs.amax(dim=-1, keepdim=True) * min_ps[:, None]
    kept = probs.masked_fill(probs < least, 0.0)
    return kept / kept.sum(dim=-1, keepdim=True)
