"""Writes what a target captures into files, from inside the scheduler, while it prefills.

The capture tool starts a server that captures layers without a draft
(`--enable-return-aux-hidden-states`) and sets SGLANG_SPEC_CAPTURE. Returning the states with the
answers, as upstream would, turns every number into text; here they go to safetensors files beside
the answer, on one rank, by a thread of their own.

Called by (patch `capture-to-files`): `managers/scheduler_components/batch_result_processor.py`, and
`aux_capture.plan_capture` for the layers to capture.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import queue
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

VARIABLE = "SGLANG_SPEC_CAPTURE"
# Requests of the tool; others (the server's warm-up) are served and not written.
_RID = re.compile(r"capture-(\d{8})")
_QUEUE_BYTES = 1 << 30


@dataclass(frozen=True)
class Settings:
    """What the tool asks for: where to, and which loop indices (None: the family's default)."""

    folder: Path
    loop_indices: tuple[int, ...] | None = None


@functools.cache
def settings() -> Settings | None:
    """The settings in the environment, None where nothing is to be written."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    given = json.loads(text)
    loops = given.get("loop_indices")
    return Settings(Path(given["folder"]), None if loops is None else tuple(loops))


def sample_file(number: int) -> Path:
    """Where sample `number` lies in a dump."""
    return Path("samples") / f"{number // 1000:05d}" / f"{number:08d}.safetensors"


def redirect(model_parts: Sequence[Any], loops: Sequence[int]) -> None:
    """Let a model capture at exactly these loop indices, whatever its family makes of ids.

    Args:
        model_parts: the objects that may hold the list, or the layers with a flag of their own.
    """
    for part in model_parts:
        if hasattr(part, "layers_to_capture"):
            part.layers_to_capture = list(loops)
        for index, layer in enumerate(getattr(part, "layers", None) or ()):
            if index in loops or hasattr(layer, "_is_layer_to_capture"):
                layer._is_layer_to_capture = index in loops


def take_states(req: Any, logits_output: Any, start: int, end: int) -> bool:
    """Take rows `start` to `end` of a prefill, which are the next tokens of `req`'s prompt.

    Returns:
        Whether they are for a file, so that the answer need not hold them.
    """
    if settings() is None:
        return False
    found = _RID.fullmatch(str(req.rid))
    if found is not None and (writer := _writer()) is not None:
        last = logits_output.last_hidden_states
        writer.take(
            int(found[1]),
            req.origin_input_ids,
            _copy(logits_output.hidden_states[start:end]),
            None if last is None else _copy(last[start:end]),
        )
    return True


def _copy(tensor: Any) -> Any:
    """On the host and in memory of its own: the engine may write over what it handed out."""
    return tensor.to("cpu", copy=True)


@functools.cache
def _writer() -> Writer | None:
    """The writer of this process: the first rank of each attention group has one."""
    from sglang.srt.runtime_context import get_parallel

    chosen = settings()
    if chosen is None or get_parallel().attn_tp_rank != 0:
        return None
    return Writer(chosen.folder)


@dataclass
class Writer:
    """Collects the chunks of each prompt and writes it when it is whole.

    At most `queue_bytes` wait for the disk; then the scheduler waits as well.
    """

    folder: Path
    queue_bytes: int = _QUEUE_BYTES
    _partial: dict[int, list[tuple[Any, Any]]] = field(default_factory=dict)
    _waiting: queue.SimpleQueue[tuple[int, list[int], list[tuple[Any, Any]], int]] = field(
        default_factory=queue.SimpleQueue
    )
    _room: threading.Condition = field(default_factory=threading.Condition)
    _held: int = 0

    def __post_init__(self) -> None:
        threading.Thread(target=self._write_all, name="capture-writer", daemon=True).start()

    def take(self, number: int, input_ids: Sequence[int], states: Any, last: Any) -> None:
        """One chunk: states [tokens, slots * hidden], last [tokens, hidden] or None."""
        chunks = self._partial.setdefault(number, [])
        chunks.append((states, last))
        tokens = sum(int(chunk.shape[0]) for chunk, _ in chunks)
        if tokens < len(input_ids):
            return
        del self._partial[number]
        if tokens > len(input_ids):
            logger.error(
                "capture: sample %d gave %d states for %d tokens and is not written",
                number,
                tokens,
                len(input_ids),
            )
            return
        self._put(number, list(input_ids), chunks)

    def _put(self, number: int, input_ids: list[int], chunks: list[tuple[Any, Any]]) -> None:
        """The thread that writes joins the chunks: the scheduler has a prefill to go on with."""
        parts = [part for chunk in chunks for part in chunk if part is not None]
        size = sum(part.numel() * part.element_size() for part in parts)
        with self._room:
            self._room.wait_for(lambda: self._held == 0 or self._held + size <= self.queue_bytes)
            self._held += size
        self._waiting.put((number, input_ids, chunks, size))

    def _write_all(self) -> None:
        from safetensors.torch import save_file

        while True:
            number, input_ids, chunks, size = self._waiting.get()
            path = self.folder / sample_file(number)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                scratch = path.with_suffix(".part")
                save_file(_tensors(input_ids, chunks), scratch)
                scratch.replace(path)
            except OSError as error:
                logger.error("capture: %s cannot be written: %s", path, error)
            del chunks
            with self._room:
                self._held -= size
                self._room.notify()


def _tensors(input_ids: list[int], chunks: list[tuple[Any, Any]]) -> dict[str, Any]:
    import torch

    tensors = {
        "input_ids": torch.tensor(input_ids, dtype=torch.int64),
        "states": _joined([states for states, _ in chunks]),
    }
    if all(last is not None for _, last in chunks):
        tensors["last_hidden_states"] = _joined([last for _, last in chunks])
    return tensors


def _joined(parts: list[Any]) -> Any:
    import torch

    return parts[0] if len(parts) == 1 else torch.cat(parts)
