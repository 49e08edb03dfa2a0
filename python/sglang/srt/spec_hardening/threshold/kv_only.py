"""A draft-extend that writes the draft's keys and values and computes nothing after them.

While speculation stays off nobody asks what the draft would propose; the draft only must not fall
behind by more than the ring holds. The keys and values of a draft of one layer depend on its input
alone, so its forward ends where attention would begin: no attention over the prefix, no MLP, no
head. Nothing is planned for an attention either, which on some backends makes the host wait.
Called by: `worker` (`fits`), `catch_up` (`Unplanned`, `write`).
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.mem_cache.memory_pool import KVWriteLoc, MHATokenToKVPool
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context
from sglang.srt.runtime_context import get_parallel


class _Written(Exception):
    """The keys and values of the only layer are in the pool."""


class Unplanned:
    """Stands before a `ModelRunner` where a batch is prepared that will not attend."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.attn_backend = _WriteOnly(runner.attn_backend)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


class _WriteOnly:
    """Stands before an attention backend; its `forward` writes, and ends the model's forward."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Nothing: the slots to write to are in the batch."""

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        **_: Any,
    ) -> torch.Tensor:
        if save_kv_cache:  # otherwise a fused kernel has written them
            self._backend.token_to_kv_pool.set_kv_buffer(
                layer, KVWriteLoc.for_batch(forward_batch), k, v
            )
        raise _Written


def fits(runner: Any) -> bool:
    """Whether the draft of this runner can be brought up to date that way.

    One attention layer with keys and values as they are: no latent or quantised cache, no scales,
    no slots that are shared out among ranks. Any other draft catches up by a whole draft-extend.
    """
    layers = [one for one in runner.model.modules() if isinstance(one, RadixAttention)]
    pool = runner.token_to_kv_pool
    return (
        len(layers) == 1
        and type(pool) is MHATokenToKVPool
        and not pool.is_quantized_kv_cache
        and pool.dtype == runner.dtype
        and layers[0].k_scale is None
        and not layers[0].is_cross_attention
        and get_parallel().attn_dcp_size == 1
    )


def write(runner: Any, forward_batch: Any) -> None:
    """Write the keys and values of a prepared draft-extend.

    Raises:
        RuntimeError: the model's forward came to its end without attending.
    """
    context = ForwardContext(attn_backend=_WriteOnly(runner.attn_backend))
    with forward_context(context, forward_batch=forward_batch):
        try:
            runner.model.forward(forward_batch.input_ids, forward_batch.positions, forward_batch)
        except _Written:
            return
    raise RuntimeError(f"{type(runner.model).__name__} attended to nothing in a draft-extend")
