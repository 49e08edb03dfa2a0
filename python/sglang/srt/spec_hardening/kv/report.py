"""What speculation costs a running server in KV cache, for `/server_info` and `doctor kv`.

Called by: `managers/scheduler_components/internal_state.py` (patch `kv-cost-in-server-info`), on
rank 0 of each replica, at each request for the state; reads shapes only.
"""

from __future__ import annotations

from typing import Any

from . import adaptive
from .reserve import cycle_of, most

# Upstream's `_handle_eagle_family` sets it, with a line in the log, where nothing was given.
DEFAULT_CAP = 48
GB = 2**30


def of_scheduler(scheduler: Any) -> dict[str, Any]:
    """Sizes of rank 0, in bytes and tokens.

    `tokens_without_speculation` is what the memory of both pools and of the draft's weights would
    hold if the target had it alone. It is an estimate: without speculation upstream also leaves
    less room for graphs and activations when it chooses `--mem-fraction-static` itself.
    """
    tokens = int(scheduler.max_total_num_tokens)
    allocator = scheduler.token_to_kv_pool_allocator
    page = int(allocator.page_size)
    of_target = pool_bytes(allocator.get_kvcache())
    draft = draft_runner(scheduler.draft_worker)
    pool = getattr(draft, "token_to_kv_pool", None)
    of_draft = 0 if pool is None else pool_bytes(pool)
    weights = 0.0 if draft is None else float(draft.weight_load_mem_usage)
    given = scheduler.server_args.max_total_tokens
    told: dict[str, Any] = {
        "tokens": tokens,
        "tokens_without_speculation": tokens,
        "sized_by": "memory" if given is None else "--max-total-tokens",
        "bytes_per_token": {
            "target": per_token(of_target, tokens, page),
            "draft": per_token(of_draft, tokens, page),
        },
        "pools_gb": {"target": round(of_target / GB, 3), "draft": round(of_draft / GB, 3)},
        "draft_weights_gb": round(weights, 3),
        "states_gb": states(scheduler),
        "adaptive_states_gb": adaptive.told(scheduler.draft_worker),
        "running_requests": cap(scheduler, tokens),
    }
    if given is None and of_target:
        alone = of_target + of_draft + int(weights * GB)
        told["tokens_without_speculation"] = alone // max(1, of_target // tokens) // page * page
    if cycle := cycle_of(scheduler.spec_algorithm, allocator):
        told["reserve"] = {
            "slots_per_request": most(cycle),
            "unknown_tokens": cycle.unknown,
            "draft_tokens": cycle.draft_tokens,
        }
    return told


def pool_bytes(pool: Any) -> int:
    """Bytes of a KV pool's buffers, as the pool itself has added them up."""
    if getattr(pool, "post_capture_active", False):  # addresses for more than is backed
        return int(pool.post_capture_backed_bytes)
    return round(float(pool.mem_usage) * GB)


def per_token(size: int, tokens: int, page: int) -> int:
    """Bytes of one token, the padding page counted as tokens."""
    return size // (tokens + page)


def draft_runner(worker: Any) -> Any:
    """The model runner of an EAGLE draft; None for other workers and without speculation."""
    return getattr(getattr(worker, "draft_worker", None), "draft_runner", None)


def states(scheduler: Any) -> dict[str, float]:
    """Memory of captured graphs and buffers by what they serve: nothing without graphs."""
    taken = {f"target {name}": gb for name, gb in scheduler.tp_worker.graph_memory_usage.items()}
    worker = scheduler.draft_worker
    if worker is not None:
        taken |= {f"speculation {name}": gb for name, gb in worker.graph_memory_usage.items()}
    threshold = getattr(worker, "threshold", None)
    if threshold is not None:
        told = threshold.info()
        taken["threshold ring"] = told["ring_gb"]
        taken["threshold graphs"] = told["graph_gb"]
    return {name: round(float(gb), 3) for name, gb in taken.items() if gb}


def cap(scheduler: Any, tokens: int) -> dict[str, Any]:
    """How many requests run at once at most, and which of three causes it is."""
    most, given = int(scheduler.max_running_requests), scheduler.server_args.max_running_requests
    if given is not None and most < given:
        reason = (
            f"--max-running-requests {given}, less by what the KV cache of {tokens} tokens holds"
        )
    elif given is not None:
        reason = f"--max-running-requests {given}"
    elif not scheduler.spec_algorithm.is_none() and most == DEFAULT_CAP:
        reason = (
            f"SGLang's default with speculation is {DEFAULT_CAP}; give --max-running-requests "
            "for more"
        )
    else:
        reason = f"what the KV cache of {tokens} tokens holds"
    return {"cap": most, "reason": reason}
