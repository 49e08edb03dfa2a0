"""Sampling in verify where there are no sampling kernels: draw the target's token at every node.

On a CPU upstream verifies by the argmax whatever a request's temperature is, in silence. Here the
target's token is drawn at every node of the draft tree from the target's own distribution, by
upstream's plain sampler, and the tree is then walked as the greedy verify walks it: on to the child
that holds the drawn token, or else the drawn token is the bonus token. Each emitted token is a draw
from the target's distribution after exactly the tokens before it, so the output has the
distribution of plain decoding. A seeded draw depends on seed and position only, and a node's
position is the one plain decoding would have there: with a seed the very tokens are equal.

Called by: `srt/speculative/eagle_utils.py`, `srt/arg_groups/speculative_hook.py` (patch
`cpu-verify-sampling`).
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from sglang.srt.layers.sampler import Sampler
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo


def per_node(info: SamplingBatchInfo, nodes: int) -> SamplingBatchInfo:
    """The sampling parameters of each request, repeated for the `nodes` nodes of its tree.

    Without what the caller has already applied to the logits (penalties, bias, grammar) and
    without the capture of sampling masks, which is by request.
    """

    def repeat(values: torch.Tensor | None) -> torch.Tensor | None:
        return None if values is None else values.repeat_interleave(nodes, dim=0)

    return dataclasses.replace(
        info,
        temperatures=repeat(info.temperatures),
        top_ps=repeat(info.top_ps),
        top_ks=repeat(info.top_ks),
        min_ps=repeat(info.min_ps),
        sampling_seed=repeat(info.sampling_seed),
        grammars=None,
        grammar_mask=None,
        penalizer_orchestrator=None,
        acc_additive_penalties=None,
        acc_scaling_penalties=None,
        logit_bias=None,
        has_custom_logit_processor=False,
        custom_logit_processor=None,
        sampling_mask_batch_indices=None,
        sampling_support_logprobs_capture_indices=None,
    )


def draw(logits: torch.Tensor, info: SamplingBatchInfo, positions: torch.Tensor) -> torch.Tensor:
    """The target's token at every node, the same on every rank.

    Args:
        logits: (rows * nodes, vocabulary), penalties and masks applied; not changed.
        info: parameters of the rows.
        positions: (rows * nodes,), of the token at each node in its sequence.

    Returns:
        (rows * nodes,) int64. Rows that ask for greedy get the argmax, whatever else is in the
        batch.
    """
    from sglang.srt.layers.logits_processor import LogitsProcessorOutput

    expanded = per_node(info, logits.shape[0] // len(info))
    # The sampler turns the logits into probabilities in place; logprobs are read off them later.
    output = LogitsProcessorOutput(next_token_logits=logits.clone(), hidden_states=None)
    drawn = _sampler()(output, expanded, False, [], [], positions).to(torch.int64)
    tokens = torch.where(expanded.top_ks <= 1, logits.argmax(dim=-1), drawn)
    _copy_from_first_rank(tokens)
    return tokens


def refuse_rejection_sampling(cfg: Any) -> None:
    """Stop at argument check where rejection sampling has no kernel.

    Raises:
        ValueError: `cfg` asks for it on a CPU, where its Triton kernel would end the first decode.
    """
    if cfg.device == "cpu" and cfg.speculative_use_rejection_sampling:
        raise ValueError(
            "--speculative-use-rejection-sampling is not available with --device cpu: its kernel "
            "needs Triton. Leave the flag out; verify then samples from the target's distribution"
        )


@cache
def _sampler() -> Sampler:
    """Upstream's plain sampler. It has no weights; one serves the whole process."""
    from sglang.srt.layers.sampler import create_sampler

    return create_sampler()


def _copy_from_first_rank(tokens: torch.Tensor) -> None:
    """Ranks draw from their own generators, so the first rank's draw counts for its group."""
    from sglang.srt.layers.dp_attention import is_dp_attention_enabled
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    group = parallel.attn_tp_group if is_dp_attention_enabled() else parallel.tp_group
    if group.world_size > 1:
        group.broadcast(tokens, src=0)
