"""The attributes of the EAGLE workers, and which of them must not be None once they are built.

Need: ALWAYS (must be set), MAY (None is a legitimate value), or a condition on the worker.

Called by: `invariants`, which declares and checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Need = Callable[[Any], bool]


def ALWAYS(_worker: Any) -> bool:
    return True


def MAY(_worker: Any) -> bool:
    return False


def _hosts_draft(worker: Any) -> bool:
    return (
        getattr(worker, "_hosts_draft", True) is not False
    )  # without it: a class that always does


def _is_adaptive(worker: Any) -> bool:
    from sglang.srt.runtime_context import get_spec

    return bool(get_spec().speculative_adaptive) and _hosts_draft(worker)


def _has_threshold(_worker: Any) -> bool:
    from sglang.srt.runtime_context import get_spec

    return getattr(get_spec(), "speculative_disable_batch_threshold", None) is not None


def _drafts_more_than_one_step(worker: Any) -> bool:
    return bool(worker.speculative_num_steps > 1)


def _says_whether_it_shares(worker: Any) -> bool:
    """A null in the draft's config is taken over as None, and means no."""
    config = getattr(getattr(worker.draft_runner, "model_config", None), "hf_config", None)
    return getattr(config, "index_share_for_mtp_iteration", False) is not None


def captures() -> bool:
    """Whether decode graphs are captured, as upstream decides it. A platform that is not upstream's
    own decides for itself."""
    from sglang.srt.model_executor.cuda_graph_config import (
        Backend,
        Phase,
        check_cuda_graph_backend,
    )
    from sglang.srt.platforms import current_platform
    from sglang.srt.runtime_context import get_model
    from sglang.srt.utils import is_cpu

    return not (
        is_cpu()
        or check_cuda_graph_backend(Phase.DECODE, Backend.DISABLED)
        or get_model().model_impl == "mindspore"
        or current_platform.is_out_of_tree()
    )


def _drafts_in_a_graph(worker: Any) -> bool:
    return _drafts_more_than_one_step(worker) and captures()


# Backends with which upstream captures the draft-extend on CUDA; with others it runs without graph.
EXTENDS_IN_A_GRAPH = frozenset(
    {
        "TritonAttnBackend",
        "TRTLLMMLABackend",
        "TRTLLMHAAttnBackend",
        "FlashInferAttnBackend",
        "QwenSparseAttnBackend",
        "DeepseekSparseAttnBackend",
        "DeepseekV4AttnBackend",
        "FlashAttentionBackend",
        "FlashMLABackend",
    }
)


def _may_capture_extend(_worker: Any) -> bool:
    from sglang.srt.environ import envs
    from sglang.srt.utils import is_cuda

    disabled = envs.SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH.get()
    return is_cuda() and not disabled and captures()


def _extends_in_a_graph(worker: Any) -> bool:
    kinds = {kind.__name__ for kind in type(worker.draft_extend_attn_backend).__mro__}
    return bool(kinds & EXTENDS_IN_A_GRAPH) and _may_capture_extend(worker)


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
    "index_share_for_mtp_iteration": _says_whether_it_shares,
    "dsa_index_topk": MAY,
    "dsa_seed_topk_width": MAY,
    "seed_dsa_topk_from_draft_extend": _says_whether_it_shares,
    "dsa_extend_topk_buf": MAY,
    "tree_mask_mode": ALWAYS,
    "plan_stream": MAY,
    "plan_stream_ctx": ALWAYS,
    "req_to_token_pool": ALWAYS,
    "token_to_kv_pool_allocator": ALWAYS,
    "hot_token_id": MAY,
    "draft_attn_backend": _drafts_more_than_one_step,
    "draft_extend_attn_backend": MAY,
    "cuda_graph_runner": _drafts_in_a_graph,
    "cuda_graph_runner_for_draft_extend": _extends_in_a_graph,
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

LAYERED_DRAFT_WORKER: Mapping[str, Need] = {
    "server_args": ALWAYS,
    "gpu_id": ALWAYS,
    "nccl_port": MAY,
    "target_worker": ALWAYS,
    "model_config": ALWAYS,
    "device": ALWAYS,
    "topk": ALWAYS,
    "speculative_num_steps": ALWAYS,
    "speculative_num_draft_tokens": ALWAYS,
    "use_rejection_sampling": ALWAYS,
    "speculative_algorithm": ALWAYS,
    "parallel_layout": ALWAYS,
    "draft_worker": ALWAYS,
    "draft_runner": ALWAYS,
    "draft_runner_list": ALWAYS,
    "chain_mtp_hidden_states": ALWAYS,
    "tree_mask_mode": ALWAYS,
    "plan_stream": MAY,
    "plan_stream_ctx": ALWAYS,
    "req_to_token_pool": ALWAYS,
    "token_to_kv_pool_allocator": ALWAYS,
    "draft_extend_num_front_tokens": ALWAYS,
    "draft_extend_num_warmup_tokens": ALWAYS,
    "boundary_kv_stash_tokens": MAY,
    "boundary_kv_stash_hiddens": MAY,
    "boundary_kv_stash_valid_lens": MAY,
    "draft_extend_attn_backend_list": ALWAYS,
    "cuda_graph_runner": MAY,
    "cuda_graph_runner_for_draft_extend": _may_capture_extend,
}

LAYERED_WORKER: Mapping[str, Need] = {
    "server_args": ALWAYS,
    "topk": ALWAYS,
    "speculative_num_steps": ALWAYS,
    "speculative_num_draft_tokens": ALWAYS,
    "gpu_id": ALWAYS,
    "device": ALWAYS,
    "_target_worker": ALWAYS,
    "page_size": ALWAYS,
    "speculative_algorithm": ALWAYS,
    "_draft_worker": ALWAYS,
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
    "MultiLayerEagleDraftWorker": LAYERED_DRAFT_WORKER,
    "MultiLayerEagleWorkerV2": LAYERED_WORKER,
}

# What the constructors of heirs do not set, as they are served without pipeline stages, attention
# data parallelism and adaptive steps, which alone need it.
_ONLY_EAGLE = frozenset(
    {"_hosts_draft", "enable_dp_spec_prefill_coordination", "adaptive_controller"}
)
LEFT_OUT: Mapping[str, frozenset[str]] = {
    "StandaloneWorkerV2": _ONLY_EAGLE,
    "FrozenKVMTPWorkerV2": _ONLY_EAGLE,
}
