"""Every attribute of the EAGLE workers: there from the first line, and not None where it counts.

`declare` is the first statement of the workers' constructors. Upstream sets the attributes one by
one over four phases; a phase that is left early leaves an object that answers `/health` and dies
at the first decode with "has no attribute …". With all of them declared, a missing one is None,
and `check` says at the end of construction which.

Need: ALWAYS (must be set), MAY (None is a legitimate value), or a condition on the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Need = Callable[[Any], bool]


class IncompleteWorkerError(RuntimeError):
    """A worker was left half done; the text names the class and the attributes."""


def ALWAYS(_worker: Any) -> bool:
    return True


def MAY(_worker: Any) -> bool:
    return False


def _hosts_draft(worker: Any) -> bool:
    return bool(worker._hosts_draft)


def _is_adaptive(worker: Any) -> bool:
    from sglang.srt.runtime_context import get_spec

    return bool(get_spec().speculative_adaptive) and _hosts_draft(worker)


def _has_threshold(_worker: Any) -> bool:
    from sglang.srt.runtime_context import get_spec

    return getattr(get_spec(), "speculative_disable_batch_threshold", None) is not None


def _drafts_more_than_one_step(worker: Any) -> bool:
    return bool(worker.speculative_num_steps > 1)


DRAFT_WORKER: Mapping[str, Need] = {
    "server_args": ALWAYS,
    "gpu_id": ALWAYS,
    "nccl_port": MAY,
    "target_worker": ALWAYS,
    "device": ALWAYS,
    "topk": ALWAYS,
    "speculative_num_steps": ALWAYS,
    "speculative_num_draft_tokens": ALWAYS,
    "speculative_algorithm": ALWAYS,
    "parallel_layout": ALWAYS,
    "draft_worker": ALWAYS,
    "draft_runner": ALWAYS,
    "index_share_for_mtp_iteration": ALWAYS,
    "dsa_index_topk": MAY,
    "dsa_seed_topk_width": MAY,
    "seed_dsa_topk_from_draft_extend": ALWAYS,
    "dsa_extend_topk_buf": MAY,
    "tree_mask_mode": ALWAYS,
    "plan_stream": MAY,
    "plan_stream_ctx": ALWAYS,
    "req_to_token_pool": ALWAYS,
    "token_to_kv_pool_allocator": ALWAYS,
    "hot_token_id": MAY,
    "draft_attn_backend": _drafts_more_than_one_step,
    "draft_extend_attn_backend": MAY,
    "cuda_graph_runner": MAY,
    "cuda_graph_runner_for_draft_extend": MAY,
}

WORKER: Mapping[str, Need] = {
    "server_args": ALWAYS,
    "topk": ALWAYS,
    "speculative_num_steps": ALWAYS,
    "speculative_num_draft_tokens": ALWAYS,
    "gpu_id": ALWAYS,
    "device": ALWAYS,
    "_target_worker": ALWAYS,
    "page_size": ALWAYS,
    "speculative_algorithm": ALWAYS,
    "enable_dp_spec_prefill_coordination": ALWAYS,
    "_hosts_draft": ALWAYS,
    "_draft_worker": _hosts_draft,
    "adaptive_controller": _is_adaptive,
    "threshold": _has_threshold,
    "num_new_pages_per_topk": ALWAYS,
    "extend_lens": ALWAYS,
    "plan_stream": MAY,
    "plan_stream_ctx": ALWAYS,
    "req_to_token_pool": ALWAYS,
    "token_to_kv_pool_allocator": ALWAYS,
}

BY_CLASS: Mapping[str, Mapping[str, Need]] = {
    "EagleDraftWorker": DRAFT_WORKER,
    "EAGLEWorkerV2": WORKER,
}


def declare(worker: Any, class_name: str) -> None:
    """Give `worker` every attribute of its class, None until it is set."""
    for name in BY_CLASS[class_name]:
        setattr(worker, name, None)


def check(worker: Any) -> None:
    """IncompleteWorkerError if a constructed EAGLE worker, or its draft worker, lacks something.

    Workers of other algorithms have their own constructors and pass.
    """
    missing = _missing(worker)
    draft_worker = getattr(worker, "_draft_worker", None)
    if draft_worker is not None:
        missing += _missing(draft_worker)
    if missing:
        raise IncompleteWorkerError(
            f"construction ended without {', '.join(missing)}; a phase was skipped or left early. "
            "The stages of the record say how far it came"
        )
    if draft_worker is not None:
        _check_token_map(draft_worker)


def _check_token_map(draft_worker: Any) -> None:
    """The worker's map must have one entry for each token of the draft: a short one is only noticed
    by the first draft token past its end."""
    own = getattr(draft_worker, "hot_token_id", None)
    models = getattr(getattr(draft_worker.draft_runner, "model", None), "hot_token_id", None)
    if own is None and models is not None:
        raise IncompleteWorkerError(
            f"EagleDraftWorker.hot_token_id is None, the draft has a map of {len(models)} tokens: "
            "what it drafts would be read as other tokens"
        )
    if own is not None and models is not None and own.shape != models.shape:
        raise IncompleteWorkerError(
            f"EagleDraftWorker.hot_token_id has shape {tuple(own.shape)}, the draft's own map "
            f"{tuple(models.shape)}"
        )


def _missing(worker: Any) -> list[str]:
    kind = type(worker).__name__
    table = BY_CLASS.get(kind, {})
    return [
        f"{kind}.{name}"
        for name, need in table.items()
        if getattr(worker, name, None) is None and need(worker)
    ]
