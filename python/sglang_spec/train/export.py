"""From a checkpoint to the folder that SGLang loads: bf16 safetensors, config, fingerprint.

The folder appears whole or not at all, is held against the contract that servers check, and may not
be larger than the recipe allows.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from ..capture import dump, fingerprint, tensorfile
from ..capture.extract import plan
from ..capture.send import ExtractError
from .checkpoint import read
from .ends import Ends
from .fit import shape_of
from .model import ARCHITECTURE, Draft
from .recipe import Recipe
from .target import Target

WEIGHTS = "model.safetensors"


class ExportError(ValueError):
    """A draft that cannot be written as it is; the text says why."""


def export(recipe: Recipe, run: Path, target: Path, ends: Ends, folder: Path) -> Path:
    """Write the draft of the checkpoint in `run` to `folder`, in place of what is there.

    Raises:
        ExportError: there is no checkpoint, the weights are too large, or the contract refuses.
    """
    held = read(run)
    if held is None:
        raise ExportError(f"{run} holds no checkpoint; run `sglang-spec train fit` first")
    tokens = held[1]["tokens"]
    draft = Draft(shape_of(recipe, ends.config, len(tokens)), tokens)
    with torch.no_grad():
        draft.scale.copy_(held[1]["scale"])
        for name, one in draft.named_parameters():
            one.copy_(held[1][f"model.{name}"])
    return write(draft, recipe.draft.layers, target, ends.config, folder, recipe.export.megabytes)


def write(
    draft: Draft,
    layers: Sequence[int],
    target: Path,
    about: dict[str, Any],
    folder: Path,
    megabytes: float,
) -> Path:
    """Write a draft in memory; see `export`. `about` is the target's config."""
    work = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    save_file(tensors(draft, about["vocab_size"]), work / WEIGHTS, metadata={"format": "pt"})
    text = json.dumps(config(draft, layers, about), indent=2)
    (work / "config.json").write_text(text + "\n")
    size = (work / WEIGHTS).stat().st_size
    if size > megabytes * 1e6:
        raise ExportError(
            f"{work / WEIGHTS}: {size / 1e6:.1f} MB, export.megabytes allows {megabytes:g}: make "
            "draft.vocabulary or draft.intermediate smaller"
        )
    contract: Any = import_module("sglang_spec.hardening.contract")
    report = contract.check_pair(str(target), str(work), contract.Settings())
    if not report.accepted:
        raise ExportError(f"a server would refuse this draft: {report.error_text()}")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(work, folder)
    return folder


def tensors(draft: Draft, vocabulary: int) -> dict[str, torch.Tensor]:
    """Checkpoint tensors in bf16, with `d2t` (differences) and `t2d` for a reduced vocabulary."""
    held = {name: one.to(torch.bfloat16).cpu().contiguous() for name, one in draft.state().items()}
    tokens = draft.tokens.cpu()
    if len(tokens) < vocabulary:
        known = torch.zeros(vocabulary, dtype=torch.bool)
        known[tokens] = True
        held |= {"d2t": tokens - torch.arange(len(tokens)), "t2d": known}
    return held


def config(draft: Draft, layers: Sequence[int], about: dict[str, Any]) -> dict[str, Any]:
    """`config.json` of a draft; `about` is its target's."""
    shape = draft.shape
    made: dict[str, Any] = {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": about["vocab_size"],
        "draft_vocab_size": shape.vocabulary,
        "max_position_embeddings": about["max_position_embeddings"],
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": list(layers),
            "use_aux_hidden_state": True,
        },
    }
    return made | {k: about[k] for k in ("bos_token_id", "eos_token_id") if k in about}


def mark(
    target: Target, draft: Path, layers: Sequence[int], prompts: Sequence[Sequence[int]], work: Path
) -> Path:
    """Write the fingerprint of the states that the draft was trained on beside it.

    Args:
        prompts: token ids; 48 of each are used.
        work: a folder for two dumps in the format of `capture dump`, left there to compare with.
    """
    try:
        every, training = plan(target.folder, None, None), plan(target.folder, draft, None)
    except ExtractError as error:
        raise ExportError(str(error)) from error
    taken = [loop - 1 for loop in training.loops]
    if taken != list(layers):
        raise ExportError(f"{draft}: a server captures layers {taken}, trained are {list(layers)}")
    opened = []
    for name, chosen in (("every", every), ("training", training)):
        folder = work / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        manifest = chosen.manifest(["plain PyTorch, no server"])
        (folder / dump.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        lines = [
            _sample(target, [loop - 1 for loop in chosen.loops], ids, number, folder)
            for number, ids in enumerate(prompts)
        ]
        (folder / dump.SAMPLES).write_text("".join(json.dumps(line) + "\n" for line in lines))
        opened.append(dump.open_dump(folder))
    return fingerprint.write(opened[1], opened[0], draft, len(prompts))


def _sample(
    target: Target, layers: Sequence[int], ids: Sequence[int], number: int, folder: Path
) -> dict[str, Any]:
    row = torch.tensor([list(ids)], device=target.device)
    states, last = target.states(row, layers)
    file = f"samples/000/{number}.safetensors"
    arrays = {
        "input_ids": row[0].cpu().numpy(),
        "states": states[0].float().cpu().numpy(),
        "last_hidden_states": last[0].float().cpu().numpy(),
    }
    tensorfile.write(folder / file, arrays, bfloat16=target.dtype is torch.bfloat16)
    return {"id": str(number), "file": file, "tokens": len(ids)}
