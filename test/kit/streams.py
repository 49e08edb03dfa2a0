"""Synthetic targets: a residual stream that grows layer by layer, as our dump or as others'."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sglang_spec.capture import tensorfile
from sglang_spec.capture.dump import FORMAT, MANIFEST, SAMPLES
from sglang_spec.capture.tensorfile import Array

LAYERS = 30
HIDDEN = 64


@dataclass(frozen=True)
class Stream:
    """`states[i]`: what is captured at loop index i, [tokens, hidden]; 0 is the embedding."""

    ids: Array
    states: Array
    last: Array


def stream(seed: int, tokens: int = 50) -> Stream:
    """Each layer adds a tenth of the state's size, as a trained model does between neighbours."""
    random = np.random.default_rng(seed)
    state = random.normal(size=(tokens, HIDDEN)).astype(np.float32)
    state[0] *= 300  # the first token's massive activations
    states = [state]
    for _ in range(LAYERS):
        size = np.linalg.norm(states[-1], axis=1, keepdims=True)
        step = random.normal(size=(tokens, HIDDEN)).astype(np.float32)
        step *= 0.15 * size / np.linalg.norm(step, axis=1, keepdims=True)
        states.append(states[-1] + step)
    ids = random.integers(0, 1000, tokens)
    return Stream(ids, np.stack(states), states[-1] / 3)


def write_dump(
    folder: Path,
    streams: Sequence[Stream],
    loops: Sequence[int],
    *,
    noise: float = 0.0,
    architecture: str = "LlamaForCausalLM",
    last: bool = True,
) -> Path:
    """A dump of ours that captured at `loops`."""
    random = np.random.default_rng(1)
    lines = []
    for number, one in enumerate(streams):
        taken = one.states[list(loops)].transpose(1, 0, 2)
        taken = taken * (1 + noise * random.normal(size=taken.shape)).astype(np.float32)
        data = {"input_ids": one.ids, "states": taken.reshape(len(one.ids), -1)}
        if last:
            data["last_hidden_states"] = one.last
        file = f"samples/{number:03d}.safetensors"
        tensorfile.write(folder / file, data, bfloat16=True)
        lines.append(json.dumps({"id": str(number), "file": file, "tokens": len(one.ids)}))
    slots = [
        {"slot": n, "takes": f"output of layer {i - 1}" if i else "the embedding", "loop_index": i}
        for n, i in enumerate(loops)
    ]
    manifest = {
        "format": FORMAT,
        "architecture": architecture,
        "layers": LAYERS,
        "hidden_size": HIDDEN,
        "slots": slots,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest))
    (folder / SAMPLES).write_text("\n".join(lines) + "\n")
    return folder
