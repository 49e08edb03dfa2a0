"""LoRA across the threshold: the plain decode's graphs have adapters' metadata of their own.

A LoRA backend keeps which row wants which adapter in buffers that captured graphs read, one set for
one width. Capturing the plain decode makes a new set, one token a request wide. Without this the
verify's graphs would go on reading a set that no batch is written to any more.
Called by: `settings` (`refused`), `worker` (`refused_layers`), `plain_graphs` (`apart`, `Routing`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

# Of a backend: what its captured decode graphs read.
BUFFERS = ("cuda_graph_batch_info", "cuda_graph_sgemm_batch_info")
LIMIT = "max_bs_in_decode_cuda_graph"  # of the manager: the most rows that those are for
BACKENDS = ("csgmv", "triton", "torch_native")


def refused(cfg: Any) -> Iterator[str]:
    """What of a launch with adapters the threshold does not serve, in the launch's own words."""
    from sglang.srt.environ import envs

    if not cfg.enable_lora:
        return
    if cfg.lora_backend not in BACKENDS:
        yield f"--lora-backend {cfg.lora_backend} ({', '.join(BACKENDS)} can)"
    if cfg.enable_lora_overlap_loading:
        yield "--enable-lora-overlap-loading"
    if envs.SGLANG_EXPERIMENTAL_LORA_OPTI.get():  # its captures leave more than `BUFFERS`
        yield "SGLANG_EXPERIMENTAL_LORA_OPTI with --enable-lora"


def refused_layers(runner: Any) -> bool:
    """Whether the target's experts are adapted: a second capture frees the buffers of the first."""
    manager = runner.lora_manager
    return manager is not None and bool(manager.lora_backend.is_moe_lora)


@dataclass(frozen=True)
class Routing:
    """The buffers of one set of graphs; empty without LoRA."""

    manager: Any = None
    buffers: dict[str, Any] = field(default_factory=dict)
    limit: int | None = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Have batches written to these inside the block."""
        if self.manager is None:
            yield
            return
        before = routing_of(self.manager)
        self._put()
        try:
            yield
        finally:
            before._put()

    def _put(self) -> None:
        vars(self.manager.lora_backend).update(self.buffers)
        if self.limit is not None:
            setattr(self.manager, LIMIT, self.limit)


def routing_of(manager: Any) -> Routing:
    """The buffers that batches are written to now."""
    if manager is None:
        return Routing()
    there = vars(manager.lora_backend)
    buffers = {name: there[name] for name in BUFFERS if name in there}
    return Routing(manager, buffers, getattr(manager, LIMIT, None))


@contextlib.contextmanager
def apart(manager: Any) -> Iterator[list[Routing]]:
    """Capture graphs inside the block; the list then has their buffers, and the former stand."""
    before, made = routing_of(manager), list[Routing]()
    try:
        yield made
    finally:
        made.append(routing_of(manager))
        if before.manager is not None:
            before._put()
