"""A step without speculation in a server that speculates: a plain decode of the target.

The result has the shape that the scheduler expects of a verify, one token wide: it carries its own
width, so that handling it one batch later, when speculation may be on again, goes right.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch
from sglang.srt.speculative.eagle_info import EagleDraftInput

from .. import cycle
from ..fidelity import window as penalties
from ..watch import phases
from .plain_graphs import PlainGraphs


def decode(
    target_worker: Any,
    graphs: PlainGraphs,
    batch: Any,
    on_publish: Callable[[torch.Tensor], None] | None,
    grammar_barrier: Callable[[], None] | None,
) -> Any:
    """Run the target over the last token of each row and sample the next, as without a draft.

    Args:
        batch: a decode batch that was prepared for speculation: `seq_lens` is the length before
            this step, `spec_info.bonus_tokens` the tokens at that position. Not changed.
        on_publish: takes the lengths that the next batch begins with; None without overlap.
        grammar_barrier: has the grammars accept what the batch before this one sampled; None
            where they have already.

    Returns:
        a `GenerationBatchResult`; its `logits_output.hidden_states` holds the captured states,
        (rows, width).
    """
    draft_input = batch.spec_info
    table = batch.req_to_token_pool.req_to_token
    step = copy.copy(batch)
    step.spec_info = None
    step.input_ids = draft_input.bonus_tokens.to(torch.int64)
    step.out_cache_loc = table[batch.req_pool_indices, batch.seq_lens].to(torch.int64)
    step.seq_lens = batch.seq_lens + 1
    if on_publish is not None:
        # Known before the step has run, unlike those after a verify: the scheduler, which may wait
        # for them on the host, prepares the next batch while this one runs.
        on_publish(step.seq_lens)
    if batch.seq_lens_cpu is not None:
        step.seq_lens_cpu = batch.seq_lens_cpu + 1
    step.seq_lens_sum = None
    runner = target_worker.model_runner
    with graphs.installed(runner):
        forward_batch = ForwardBatch.init_new(
            step,
            runner,
            capture_hidden_mode=CaptureHiddenMode.FULL,
            return_hidden_states_before_norm=False,
        )
        cycle.begin(phases.DECODE)
        done = target_worker.forward_batch_generation(
            batch=None, forward_batch=forward_batch, is_verify=True
        )
    cycle.begin(phases.SAMPLE)
    if grammar_barrier is not None and batch.has_grammar:
        grammar_barrier()
    # The scheduler's own penalties are out of work on a server that speculates.
    penalties.plain_step(batch, step.input_ids, done.logits_output.next_token_logits)
    tokens = runner.sample(done.logits_output, forward_batch)
    if batch.return_logprob:
        # A verify has a row of them for each request.
        logprobs = done.logits_output.next_token_logprobs
        done.logits_output.next_token_logprobs = logprobs.view(-1, 1)
    return GenerationBatchResult(
        is_plain_step=True,
        logits_output=done.logits_output,
        next_token_ids=tokens,
        can_run_cuda_graph=done.can_run_cuda_graph,
        speculative_num_draft_tokens=1,
        next_draft_input=_carry(draft_input, tokens, batch.enable_overlap),
        accept_lens=_ones(tokens.shape[0], tokens.device),
        new_seq_lens=step.seq_lens,
        routed_experts_output=done.routed_experts_output,
        indexer_topk_output=done.indexer_topk_output,
        extra_keep_alive_refs=[forward_batch],
    )


@functools.lru_cache
def _ones(rows: int, device: torch.device) -> torch.Tensor:
    """Accept lengths of so many rows; read only, so one tensor serves all steps."""
    return torch.ones(rows, dtype=torch.int32, device=device)


def _carry(before: Any, tokens: torch.Tensor, overlap: bool) -> Any:
    """The next batch's draft input; what a draft starts from is stale until the draft catches up.

    Under overlap the relay keeps those fields by row, and None leaves them there untouched.
    """
    after = EagleDraftInput(bonus_tokens=tokens)
    if not overlap:
        after.topk_p = before.topk_p
        after.topk_index = before.topk_index
        after.hidden_states = before.hidden_states
        after.draft_probs = before.draft_probs
    after.cuda_graph_compatible = before.cuda_graph_compatible
    return after
