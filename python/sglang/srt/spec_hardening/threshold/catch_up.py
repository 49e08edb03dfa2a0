"""The draft catches up: one draft-extend over what the target decoded without it.

Each row of a batch is some tokens behind, from none to the ring's capacity. All rows get the same
width, as attention backends take a draft-extend; what is too much lies after a row's own tokens,
where causal attention keeps it from them, and is written to the padding slot of the KV pool. The
width is host knowledge and the lengths stay on the device, so nothing waits.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.runtime_context import get_spec
from sglang.srt.speculative.eagle_info import EagleDraftExtendInput
from sglang.srt.speculative.eagle_worker_common import prepare_for_draft_extend
from sglang.srt.speculative.spec_utils import renorm_draft_probs, sample_draft_proposal
from sglang.srt.utils.common import fast_topk

from . import kv_only
from .ring import Ring, to_device


@dataclass(frozen=True)
class DraftStart:
    """What the next draft of each row starts from; see `EagleDraftInput` for the shapes."""

    topk_p: torch.Tensor
    topk_index: torch.Tensor
    hidden_states: torch.Tensor | None
    draft_probs: torch.Tensor | None


def catch_up(
    draft: Any, batch: Any, ring: Ring, rows: Sequence[int], counts: Sequence[int]
) -> DraftStart:
    """Write the draft's KV of every token that it has not seen; rows with none are left alone.

    Args:
        draft: the `EagleDraftWorker`; the caller has entered its parallel contexts.
        batch: the decode batch about to run, `seq_lens` before this step. Not changed.
        rows, counts: the batch's rows of the request table, and how many tokens each is behind.

    Returns:
        where the next draft starts; meaningless for rows that were not behind.
    """
    forward_batch, last = _prepared(draft, draft.draft_runner, batch, ring, rows, counts)
    output = draft.draft_runner.forward(forward_batch).logits_output
    states = output.hidden_states
    return _start(
        draft.topk, batch, output.next_token_logits, None if states is None else states[last]
    )


def write_only(
    draft: Any, batch: Any, ring: Ring, rows: Sequence[int], counts: Sequence[int]
) -> None:
    """The same KV, where speculation stays off and `kv_only.fits` the draft: no next draft is
    asked for, so nothing after the KV is computed."""
    runner = kv_only.Unplanned(draft.draft_runner)
    forward_batch, _ = _prepared(draft, runner, batch, ring, rows, counts)
    kv_only.write(draft.draft_runner, forward_batch)


def _prepared(
    draft: Any, runner: Any, batch: Any, ring: Ring, rows: Sequence[int], counts: Sequence[int]
) -> tuple[Any, torch.Tensor]:
    """The draft-extend, ready to run, and the place of each row's last token in it.

    Its attention is planned on the backend of `runner`.
    """
    width = max(counts)
    behind = to_device(counts, batch.device)
    slots = torch.arange(width, device=batch.device)
    ahead = slots >= behind[:, None]

    scratch = copy.copy(batch)
    scratch.seq_lens = batch.seq_lens - behind
    if batch.seq_lens_cpu is not None:
        scratch.seq_lens_cpu = batch.seq_lens_cpu - torch.tensor(counts)
    scratch.seq_lens_sum = None
    table = draft.req_to_token_pool.req_to_token
    columns = (scratch.seq_lens[:, None] + slots).clamp(max=table.shape[1] - 1)
    locations = table[batch.req_pool_indices[:, None], columns].to(torch.int64)
    scratch.out_cache_loc = locations.masked_fill(ahead, 0).flatten()

    hidden, tokens = ring.take(rows, width)
    seen = behind.clamp(min=1).to(torch.int32)
    last = torch.arange(len(rows), device=batch.device) * width + seen - 1
    extend = EagleDraftExtendInput(
        hidden_states=hidden,
        num_correct_drafts=seen - 1,
        num_accept_tokens=seen,
        num_tokens_per_req=width,
        num_tokens_for_logprob_per_req=width,
        select_index=last,
    )
    forward_batch = prepare_for_draft_extend(
        extend,
        scratch,
        tokens,
        width,
        runner,
        None,
        return_hidden_states_before_norm=False,
    )
    return forward_batch, last


def _start(topk: int, batch: Any, logits: torch.Tensor, states: torch.Tensor | None) -> DraftStart:
    """The proposals after the last token, chosen as upstream's draft-extend chooses them."""
    sampling = batch.sampling_info
    if get_spec().speculative_use_rejection_sampling:
        probs, topk_p, topk_index = sample_draft_proposal(
            logits,
            sampling.temperatures,
            sampling.top_ks,
            sampling_seed=sampling.sampling_seed,
            positions=batch.seq_lens,
        )
        return DraftStart(topk_p, topk_index, states, probs)
    if topk == 1:
        topk_index = torch.argmax(logits, dim=-1, keepdim=True)
        return DraftStart(
            torch.ones_like(topk_index, dtype=torch.float32), topk_index, states, None
        )
    probs = renorm_draft_probs(logits, sampling, False)
    topk_p, topk_index = fast_topk(probs, topk, dim=-1)
    return DraftStart(topk_p, topk_index, states, None)
