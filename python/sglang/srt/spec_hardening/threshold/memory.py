"""Memory that the batch threshold takes on a GPU, for the budget of a launch; no torch.

Called by: `arg_groups/memory_hook.py` (patch `batch-threshold-memory`), where the share of memory
for weights and KV pool is chosen. What was really taken is in the log and in `/server_info`.
"""

from __future__ import annotations

from typing import Any

from .pending import CAPACITY

# What upstream reserves for each row of the largest graph.
GRAPH_MB_PER_ROW = 2.0
# Upstream's limit of running requests with speculation, where none is given.
DEFAULT_REQUESTS = 48
# Layers whose states a draft takes, where its config is not at hand: those of nearly all drafts.
CAPTURED_LAYERS = 3
BYTES = 2


def ring_mb(requests: int, hidden_size: int) -> float:
    """Captured states of `CAPACITY` tokens for each request, in MB."""
    return (requests + 1) * CAPACITY * CAPTURED_LAYERS * hidden_size * BYTES / 2**20


def reserve_mb(server_args: Any) -> float:
    """MB to keep free besides what a server without a threshold needs.

    Args:
        server_args: the record that is being resolved.
    """
    from sglang.srt.arg_groups.model_override_base import model_config_of, resolving_view

    cfg = resolving_view(server_args)
    if cfg.speculative_disable_batch_threshold is None:
        return 0.0
    requests = cfg.max_running_requests or DEFAULT_REQUESTS
    reserved = ring_mb(requests, int(model_config_of(server_args).hidden_size))
    return reserved + float(cfg.cuda_graph_config.decode.max_bs) * GRAPH_MB_PER_ROW
