"""The tiny DeepSeek targets by transformers' own implementation, in float32: states of every layer.

INT4 experts are unpacked by compressed-tensors' own function, so an engine that agrees has both
unpacked and multiplied them as their authors meant it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from safetensors.torch import load_file
from sglang_spec.capture import tensorfile
from sglang_spec.capture.dump import Dump, open_dump
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

State = dict[str, torch.Tensor]


def plain_state(target: Path) -> State:
    """The language model's tensors in float32 by their plain names, experts unpacked."""
    held = load_file(target / "model.safetensors")
    state: State = {}
    for name, tensor in held.items():
        if name.startswith(("vision_tower.", "mm_projector.")):
            continue
        name = name.removeprefix("language_model.")
        start, _, suffix = name.rpartition(".")
        if suffix == "weight_packed":
            shape = torch.Size(held_like(held, name, "weight_shape").tolist())
            values = unpack_from_int32(tensor, 4, shape).float()
            scales = held_like(held, name, "weight_scale").float()
            grouped = values.reshape(shape[0], scales.shape[1], -1) * scales[:, :, None]
            state[f"{start}.weight"] = grouped.reshape(shape)
        elif suffix not in ("weight_scale", "weight_shape"):
            state[name] = tensor.float()
    return state


def held_like(held: State, name: str, suffix: str) -> torch.Tensor:
    """The tensor beside `name` (without the wrapper's prefix) that ends in `suffix`."""
    beside = f"{name.rpartition('.')[0]}.{suffix}"
    return held[beside] if beside in held else held[f"language_model.{beside}"]


def model(target: Path) -> DeepseekV3ForCausalLM:
    """The model in evaluation mode; every parameter was in the checkpoint."""
    config = json.loads((target / "config.json").read_text())
    text = dict(config.get("text_config", config))
    for key in ("quantization_config", "architectures", "model_type", "torch_dtype"):
        text.pop(key, None)
    built = DeepseekV3ForCausalLM(DeepseekV3Config(**text)).float().eval()
    state = plain_state(target)
    experts = int(text["n_routed_experts"])
    wanted: State = {}
    for name in built.state_dict():
        start, _, last = name.rpartition(".")
        if last in ("gate_up_proj", "down_proj"):  # all experts of a layer in one parameter
            parts = ("gate_proj", "up_proj") if last == "gate_up_proj" else ("down_proj",)
            wanted[name] = torch.stack(
                [
                    torch.cat([state.pop(f"{start}.{e}.{part}.weight") for part in parts])
                    for e in range(experts)
                ]
            )
        else:
            wanted[name] = state.pop(name)
    assert not state, f"tensors that the model does not take: {sorted(state)}"
    built.load_state_dict(wanted)
    return built


def dump(
    target: Path, prompts: Sequence[Sequence[int]], folder: Path, loops: Sequence[int]
) -> Dump:
    """The states before the layers `loops` of every prompt, as a dump; 0 is the embedding."""
    built = model(target)
    folder.mkdir(parents=True)
    for number, prompt in enumerate(prompts):
        with torch.no_grad():
            made: Any = built(torch.tensor([list(prompt)]), output_hidden_states=True)
        states = torch.cat([made.hidden_states[loop][0] for loop in loops], dim=-1)
        held = {
            "input_ids": np.array(prompt, np.int64),
            "states": states.numpy(),
            "hidden_state": made.hidden_states[-1][0].numpy(),
        }
        tensorfile.write(folder / f"{number}.safetensors", held)
    return open_dump(folder, tuple(takes(loop) for loop in loops))


def takes(loop: int) -> str:
    """What is captured before layer `loop`, in the contract's words."""
    return "the embedding" if loop == 0 else f"output of layer {loop - 1}"
