"""Adaptive states capture the sizes that were asked for, and of those what they can be used at.

What would be captured on a GPU is read where upstream's graph runners read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from sglang.srt.model_executor.cuda_graph_config import (
    Backend,
    CudaGraphConfig,
    Phase,
    PhaseConfig,
    check_cuda_graph_backend,
)
from sglang.srt.model_executor.runner import base_cuda_graph_runner as runners
from sglang.srt.runtime_context import get_context, get_exec
from sglang.srt.spec_hardening.threshold import worker as threshold_worker
from sglang.srt.speculative import eagle_worker_v2
from sglang.srt.speculative.adaptive_runtime_state import AdaptiveController
from sglang.srt.speculative.adaptive_spec_params import AdaptiveSpeculativeParams
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker

REQUESTS = 128
Captured = dict[int, list[int]]


@pytest.fixture(autouse=True)
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(runners, "get_cuda_graph_batch_size_alignment", lambda **_: 1)
    monkeypatch.setattr(runners.DllmConfig, "from_server_args", lambda _: None)
    monkeypatch.setattr(threshold_worker, "attach", lambda worker: None)
    monkeypatch.setattr(BaseSpecWorker, "init_cuda_graphs", lambda self: None)
    for name in (
        "draft_tp_context",
        "speculative_moe_backend_context",
        "speculative_moe_a2a_backend_context",
    ):
        monkeypatch.setattr(eagle_worker_v2, name, lambda *_: nullcontext())
    with get_context().override_server_args():
        yield


def captured(sizes: list[int] | None, backend: str = Backend.FULL) -> Captured:
    """What each state but the first, of 3 steps, captures on a server that was asked for these."""
    decode = PhaseConfig(backend=backend, bs=sizes, max_bs=max(sizes) if sizes else None)
    asked = CudaGraphConfig(decode=decode)
    get_context().override("test", cuda_graph_config=asked)
    worker: Any = object.__new__(eagle_worker_v2.EAGLEWorkerV2)
    worker.speculative_num_steps, worker.speculative_num_draft_tokens = 3, 4
    worker._draft_worker, worker._target_worker = MagicMock(), MagicMock()
    worker.apply_runtime_state = MagicMock()
    model_runner = SimpleNamespace(
        req_to_token_pool=SimpleNamespace(size=REQUESTS), server_args=None
    )
    found: Captured = {}

    def build(*, cuda_graph_bs: list[int] | None, **steps: int) -> Any:
        with worker._override_worker_state(*steps.values(), cuda_graph_bs=cuda_graph_bs):
            if check_cuda_graph_backend(Phase.DECODE, Backend.DISABLED):
                sizes: list[int] = []
            else:
                sizes, _ = runners.get_batch_sizes_to_capture(model_runner)
            found[steps["speculative_num_steps"]] = sizes
        return MagicMock(**steps)

    worker.build_adaptive_runtime_state = build
    worker.adaptive_controller = AdaptiveController(worker, AdaptiveSpeculativeParams(3))
    worker.init_cuda_graphs()
    assert get_exec().graph.cuda_graph_config == asked, "what was asked is as it was"
    return found


def test_a_state_captures_the_sizes_at_which_it_can_be_used() -> None:
    """The default table has 1, 3, 5, 7 steps below 8 requests, then 0, 1, 3, from 32 0, 1."""
    found = captured([1, 2, 4, 8, 16, 32, 64, 128])
    assert found == {
        0: [8, 16, 32, 64, 128],
        1: [1, 2, 4, 8, 16, 32],
        5: [1, 2, 4],
        7: [1, 2, 4],
    }


def test_a_state_that_no_size_leads_to_captures_none() -> None:
    assert captured([64, 96]) == {0: [64, 96], 1: [], 5: [], 7: []}


def test_without_graphs_none_are_captured() -> None:
    assert captured(None, Backend.DISABLED) == {0: [], 1: [], 5: [], 7: []}
