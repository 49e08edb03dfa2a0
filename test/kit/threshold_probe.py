"""`sglang.launch_server` with a batch threshold that follows a plan: a program for tests only.

The file named by `SPEC_TEST_FAULT` says what decides from the next decode batch on. Change it only
while no request runs, so that all ranks see the same; whatever follows the words is a comment.

    rows             the server's own flags (also while the file is empty)
    on               every batch speculates
    off N            the next N batches do not, those after them do
    coin SEED        now so, now so, changed by three throws in ten

A last word may name a fault, which spoils each catching-up of the draft or each plain step while it
stands there:

    skip-one         one request catches up by its first token only
    other-states     the states of a request are those of the next row
    shifted          keys and values are written a token late
    uncounted        a plain step does not count its token for penalties and `min_new_tokens`
    unpenalized      a plain step does not apply them
    unadapted        a plain step leaves out the adapters of its requests

More variables: `SPEC_TEST_SLOW_RANK` delays one rank at every decision; with `SPEC_TEST_RETRACT`
some request is retracted every few batches; with `SPEC_TEST_OVERLAP` batches overlap on a CPU too,
with `SPEC_TEST_LORA` adapters are served there;
`SPEC_TEST_KV` names a folder, where each finished request whose id begins with `kv-` leaves the
draft's KV as it was.

Runs under both start methods, like `kit.faulty`.
"""

from __future__ import annotations

import copy
import os
import random
import runpy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sglang.srt.arg_groups import speculative_hook
from sglang.srt.distributed import get_tp_group
from sglang.srt.lora.lora_manager import LoRAManager
from sglang.srt.managers import overlap_utils, scheduler
from sglang.srt.managers.scheduler_components import batch_result_processor
from sglang.srt.spec_hardening.fidelity.window import Window
from sglang.srt.spec_hardening.threshold import worker as threshold_worker

VARIABLE = "SPEC_TEST_FAULT"
SLOW = "SPEC_TEST_SLOW_RANK"
KV = "SPEC_TEST_KV"
RETRACT = "SPEC_TEST_RETRACT"
OVERLAP = "SPEC_TEST_OVERLAP"
LORA = "SPEC_TEST_LORA"


class Planned:
    """A decider that follows the file; `own` is the server's."""

    def __init__(self, own: Any) -> None:
        self._own = own
        self._said = ""
        self._batch = 0
        self._dice = random.Random(0)
        self._on = True

    @property
    def reason(self) -> str:
        return f"plan {self._said}" if self._said else str(self._own.reason)

    def observe(self, correct_drafts: list[int]) -> None:
        self._own.observe(correct_drafts)

    def details(self) -> dict[str, Any]:
        return dict(self._own.details())

    def decide(self, rows: int, tokens: int | None = None) -> bool:
        if os.environ.get(SLOW) == str(get_tp_group().rank_in_group):
            time.sleep(0.02)
        said = Path(os.environ[VARIABLE]).read_text()
        if said != self._said:
            self._said, self._batch = said, 0
            self._dice = random.Random(said)
        kind, *numbers = said.split() or ["rows"]
        STANDING[:] = [word for word in numbers if word in (*FAULTS, *LEFT_OUT, UNADAPTED)]
        self._batch += 1
        if kind == "on":
            return True
        if kind == "off":
            return self._batch > int(numbers[0])
        if kind == "coin":
            if self._dice.random() < 0.3:
                self._on = not self._on
            return self._on
        return bool(self._own.decide(rows, tokens))


WORKER: list[Any] = []


def plan_decisions(plain: Callable[..., Any]) -> Callable[..., Any]:
    def make_decider(arguments: Any, worker: Any) -> Any:
        WORKER[:] = [worker]
        own = plain(arguments, worker)
        return None if own is None else Planned(own)

    return make_decider


def skip_one(batch: Any, ring: Any, rows: list[int], counts: list[int]) -> tuple[Any, ...]:
    return batch, ring, rows, [*counts[:-1], min(counts[-1], 1)]


def other_states(batch: Any, ring: Any, rows: list[int], counts: list[int]) -> tuple[Any, ...]:
    # Rows of the batch itself go to each other; one alone gets those of a row that nobody has.
    others = [*rows[1:], rows[0]] if len(rows) > 1 else [0]
    moved = copy.copy(ring)
    moved.take = lambda _, entries: ring.take(others, entries)
    return batch, moved, rows, counts


def shifted(batch: Any, ring: Any, rows: list[int], counts: list[int]) -> tuple[Any, ...]:
    late = copy.copy(batch)
    late.seq_lens = batch.seq_lens + 1
    if batch.seq_lens_cpu is not None:
        late.seq_lens_cpu = batch.seq_lens_cpu + 1
    return late, ring, rows, counts


# Of a window, where it is that of a plain step.
LEFT_OUT = {"uncounted": "close", "unpenalized": "penalize"}
FAULTS = {"skip-one": skip_one, "other-states": other_states, "shifted": shifted}
UNADAPTED = "unadapted"
STANDING: list[str] = []


def spoil(plain: Callable[..., Any]) -> Callable[..., Any]:
    def catch_up(draft: Any, batch: Any, ring: Any, rows: list[int], counts: list[int]) -> Any:
        for name in FAULTS.keys() & STANDING:
            batch, ring, rows, counts = FAULTS[name](batch, ring, rows, counts)
        return plain(draft, batch, ring, rows, counts)

    return catch_up


def leave_out(fault: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def called(self: Window, *args: Any) -> Any:
        if fault in STANDING and self._verify.draft_token_num == 1:
            return None
        return plain(self, *args)

    return called


def show_kv(plain: Callable[..., Any]) -> Callable[..., Any]:
    def release(req: Any, tree_cache: Any, *, checkpoint: bool) -> Any:
        if KV in os.environ and req.rid.startswith("kv-"):
            _dump(req)
        return plain(req, tree_cache, checkpoint=checkpoint)

    return release


def _dump(req: Any) -> None:
    """Keys and values of the draft's layer, (tokens, heads, head size), as float32."""
    draft = WORKER[0].draft_worker.draft_runner
    # A request may end while the draft is behind; what it has not seen is nobody's.
    (behind,) = WORKER[0].threshold.behind.of([req.kv.req_pool_idx])
    length = req.kv.kv_committed_len - behind
    slots = draft.req_to_token_pool.req_to_token[req.kv.req_pool_idx, :length].long()
    pool = draft.token_to_kv_pool
    layer = pool.start_layer
    rows = {
        "k": pool.get_key_buffer(layer)[slots].float().cpu().numpy(),
        "v": pool.get_value_buffer(layer)[slots].float().cpu().numpy(),
    }
    rank = get_tp_group().rank_in_group
    np.savez(Path(os.environ[KV]) / f"{req.rid}.{rank}.npz", **rows)


def overlap_on_a_cpu() -> None:
    """Upstream turns overlap off there: of its loop and its relay between batches only the kernel
    that copies a batch's rows from the relay has no form for a CPU. There are no streams, so the
    host learns of a step one batch late, and what needs two streams to go wrong does not show."""

    def rows_of(indices: Any, *buffers: Any) -> tuple[Any, ...]:
        return tuple(None if buffer is None else buffer[indices] for buffer in buffers)

    speculative_hook._disable_overlap_schedule_for_cpu = lambda _: None
    overlap_utils.gather_spec_extras = rows_of  # type: ignore[assignment]


def forget_adapters(plain: Callable[..., Any]) -> Callable[..., Any]:
    def prepare(self: LoRAManager, forward_batch: Any) -> Any:
        if UNADAPTED in STANDING and forward_batch.forward_mode.is_decode():
            forward_batch.lora_ids = [None] * len(forward_batch.lora_ids)
        return plain(self, forward_batch)

    return prepare


def lora_on_a_cpu() -> None:
    """Upstream's LoRA pins host memory, which torch can do only where there is a GPU."""

    def unpinned(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, pin_memory: bool = False, **options: Any) -> Any:
            return make(*args, **options)

        return made

    for name in ("tensor", "zeros", "empty", "arange"):
        setattr(torch, name, unpinned(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda self, *_: self  # type: ignore[method-assign,assignment]


if VARIABLE in os.environ:
    threshold_worker.make_decider = plan_decisions(threshold_worker.make_decider)
    threshold_worker.catch_up = spoil(threshold_worker.catch_up)
    threshold_worker.write_only = spoil(threshold_worker.write_only)
    for fault, part in LEFT_OUT.items():
        setattr(Window, part, leave_out(fault, getattr(Window, part)))
    LoRAManager.prepare_lora_batch = forget_adapters(  # type: ignore[method-assign]
        LoRAManager.prepare_lora_batch
    )
    batch_result_processor.release_kv_cache = show_kv(batch_result_processor.release_kv_cache)
    if OVERLAP in os.environ:
        overlap_on_a_cpu()
    if LORA in os.environ:
        lora_on_a_cpu()
    if RETRACT in os.environ:
        scheduler.TEST_RETRACT = True
        scheduler.TEST_RETRACT_INTERVAL = 7

if __name__ == "__main__":
    # `__main__` stays this file: a spawned rank imports it again.
    runpy.run_module("sglang.launch_server", run_name="__main__")
