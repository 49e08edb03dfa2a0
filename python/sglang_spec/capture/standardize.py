"""From dumps to training data: one layout, whatever the dump looked like.

layout `sglang-spec`: DIR/0000/000000.safetensors with input_ids, loss_mask [tokens],
    hidden_states [tokens, slots * hidden] (slot 0 first), last_hidden_states [tokens, hidden]
layout `specforge`: DIR/rows_0-2000/data_0.ckpt, a torch.save of input_ids, loss_mask [tokens],
    aux_hidden_state [1, tokens, slots * hidden], hidden_state [1, tokens, hidden]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import tensorfile
from .dump import Dump, Sample
from .tensorfile import Array

LAYOUTS = ("sglang-spec", "specforge")
_ROWS = 2000


@dataclass(frozen=True)
class Result:
    """Samples written, and those left out with the reason."""

    written: int
    tokens: int
    left_out: tuple[tuple[str, str], ...]


def standardize(
    dump: Dump,
    folder: Path,
    layout: str = "sglang-spec",
    order: tuple[int, ...] | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Result:
    """Write every sample of `dump` into `folder`.

    Args:
        order: slots to write, in this order; the default is all of them as they are.

    Samples without token ids or without the last state cannot be trained on and are left out.
    A sample without a loss mask counts every token.
    """
    chosen = order or tuple(range(len(dump.labels)))
    left_out: list[tuple[str, str]] = []
    written = tokens = 0
    for sample in dump.samples():
        lacking = _lacking(sample)
        if lacking:
            left_out.append((sample.id, lacking))
            continue
        data = _arrays(sample, chosen)
        (_write_specforge if layout == "specforge" else _write_own)(folder, written, data)
        written, tokens = written + 1, tokens + len(data["input_ids"])
        progress(written)
    _describe(folder, dump, layout, chosen, written, tokens)
    return Result(written, tokens, tuple(left_out))


def _lacking(sample: Sample) -> str | None:
    if sample.input_ids is None:
        return "it has no token ids"
    if sample.last is None:
        return "it has no last hidden state"
    if len(sample.input_ids) != len(sample.states):
        return f"{len(sample.input_ids)} token ids for {len(sample.states)} states"
    return None


def _arrays(sample: Sample, chosen: tuple[int, ...]) -> dict[str, Array]:
    assert sample.input_ids is not None and sample.last is not None
    tokens = len(sample.states)
    mask = np.ones(tokens, np.int64) if sample.loss_mask is None else sample.loss_mask
    return {
        "input_ids": sample.input_ids.astype(np.int64),
        "loss_mask": mask.astype(np.int64),
        "hidden_states": sample.states[:, list(chosen)].reshape(tokens, -1),
        "last_hidden_states": sample.last,
    }


def _write_own(folder: Path, number: int, data: dict[str, Array]) -> None:
    path = folder / f"{number // _ROWS:04d}" / f"{number:06d}.safetensors"
    tensorfile.write(path, data, bfloat16=True)


def _write_specforge(folder: Path, number: int, data: dict[str, Array]) -> None:
    import torch

    begin = number // _ROWS * _ROWS
    path = folder / f"rows_{begin}-{begin + _ROWS}" / f"data_{number}.ckpt"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(
        {
            "input_ids": torch.from_numpy(data["input_ids"].copy()),
            "loss_mask": torch.from_numpy(data["loss_mask"].copy()),
            "hidden_state": torch.from_numpy(data["last_hidden_states"])[None].bfloat16(),
            "aux_hidden_state": torch.from_numpy(data["hidden_states"])[None].bfloat16(),
        },
        path,
    )


def _describe(
    folder: Path, dump: Dump, layout: str, chosen: tuple[int, ...], written: int, tokens: int
) -> None:
    slots: list[dict[str, Any]] = [
        {"slot": place, "takes": dump.labels[slot], "loop_index": dump.loops[slot]}
        for place, slot in enumerate(chosen)
    ]
    text = {
        "layout": layout,
        "samples": written,
        "tokens": tokens,
        "hidden_size": dump.hidden_size,
        "slots": slots,
        "from": str(dump.folder.name),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.json").write_text(json.dumps(text, indent=1) + "\n")


def read_data(folder: Path) -> Iterator[dict[str, Array]]:
    """The samples of a folder in layout `sglang-spec`, for a training loop."""
    for file in sorted(folder.glob("*/*.safetensors")):
        opened = tensorfile.TensorFile(file)
        yield {name: opened.read(name) for name in opened.names()}
