"""The memory of the threshold is part of the budget that a launch keeps free."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sglang_spec.models import tiny_pair


def reserved(threshold: str | None, backend: str = "full") -> float:
    """MB that upstream's hook keeps free for graphs, at most 32 rows in them."""
    from sglang.srt.arg_groups.memory_hook import reserve_for_graph_mb
    from sglang.srt.server_args import ServerArgs

    config: Any = SimpleNamespace(
        decode=SimpleNamespace(backend=backend, max_bs=32),
        prefill=SimpleNamespace(backend="disabled"),
    )
    arguments = ServerArgs(
        model_path=str(tiny_pair().target),
        device="cpu",
        max_running_requests=64,
        speculative_disable_batch_threshold=threshold,
        cuda_graph_config=config,
    )
    return float(reserve_for_graph_mb(arguments))


def test_ring_and_graphs_are_reserved() -> None:
    hidden_size = 256
    ring = 65 * 16 * 3 * hidden_size * 2 / 2**20
    assert reserved("32") - reserved(None) == pytest.approx(ring + 32 * 2)


def test_without_graphs_nothing_is_reserved() -> None:
    """Upstream's hook reserves for graphs; a server without them has room for the ring."""
    assert reserved("32", "disabled") == reserved(None, "disabled")
