"""CUDA graphs of the target's plain decode, beside those of its verify.

With speculation on, upstream captures the target's verify and nothing else, so that a plain decode
would run eagerly at the very batch sizes where it has to be fast. A second attention backend holds
the decode's buffers (building the graphs on the first would replace buffers that the verify graphs
have captured); the float workspace is shared, as only one of the two runs at a time.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, check_cuda_graph_backend
from sglang.srt.utils.common import get_available_gpu_memory

from .adapters import Routing, apart

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlainGraphs:
    """What the target's runner decodes with while speculation is off; all None without graphs."""

    backend: Any = None
    graphs: Any = None
    gigabytes: float = 0.0
    seconds: float = 0.0
    routing: Routing = field(default_factory=Routing)

    @contextlib.contextmanager
    def installed(self, runner: Any) -> Iterator[None]:
        """Have the target's runner prepare and run its decodes for these inside the block."""
        if self.graphs is None:
            yield
            return
        verify = (runner.attn_backend, runner.decode_cuda_graph_runner)
        runner.attn_backend, runner.decode_cuda_graph_runner = self.backend, self.graphs
        try:
            with self.routing.installed():
                yield
        finally:
            runner.attn_backend, runner.decode_cuda_graph_runner = verify


def capture(runner: Any) -> PlainGraphs:
    """Capture a plain decode of the target for each batch size, like a server without a draft.

    Args:
        runner: the target's `ModelRunner`, its verify graphs captured.
    """
    if runner.device == "cpu" or check_cuda_graph_backend(Phase.DECODE, Backend.DISABLED):
        return PlainGraphs()
    from sglang.srt.model_executor.runner import DecodeCudaGraphRunner

    began = time.perf_counter()
    before = get_available_gpu_memory(runner.device, runner.gpu_id)
    backend = runner._get_attention_backend(init_new_workspace=False)
    with apart(runner.lora_manager) as routings:
        graphs = DecodeCudaGraphRunner(runner, attn_backend=backend, plain_decode=True)
    taken = before - get_available_gpu_memory(runner.device, runner.gpu_id)
    seconds = time.perf_counter() - began
    logger.info(
        "Batch threshold: graphs of the plain decode for %s rows took %.2f GB and %.1f s",
        graphs.capture_bs,
        taken,
        seconds,
    )
    return PlainGraphs(backend, graphs, taken, seconds, routings[0])
