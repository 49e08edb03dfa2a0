"""A training run on disk: safetensors and JSON, written whole or not at all, no pickle.

checkpoint.safetensors    parameters, both moments of AdamW, the draft's tokens and scale
log.jsonl                 a line every so many steps; what is later than the checkpoint is cut
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from .model import Draft
from .optimizer import Optimizers

FILE, LOG = "checkpoint.safetensors", "log.jsonl"
_FORMAT = "sglang-spec-train/1"


class CheckpointError(ValueError):
    """A checkpoint of another run."""


@dataclass
class State:
    """How far a run has come: batch `index` of pass `epoch` is next.

    `seconds` of training, over all calls; `tokens` learned, those of later passes again; `done` if
    the schedule has ended. `settings` is what the run was started with.
    """

    settings: dict[str, Any]
    step: int = 0
    epoch: int = 0
    index: int = 0
    tokens: int = 0
    seconds: float = 0.0
    done: bool = False


def save(folder: Path, state: State, draft: Draft, optimizer: Optimizers) -> None:
    """Write a checkpoint; the one before stays until the new one is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    held = {"tokens": draft.tokens, "scale": draft.scale}
    for name, one in draft.named_parameters():
        held[f"model.{name}"] = one.detach()
        for key, value in optimizer.moments(one).items():
            held[f"optimizer.{name}.{key}"] = torch.as_tensor(value)
    tensors = {name: one.cpu().contiguous() for name, one in held.items()}
    partial = folder / (FILE + ".partial")
    about = {"format": _FORMAT, "state": json.dumps(asdict(state))}
    save_file(tensors, partial, metadata=about)
    with partial.open("rb") as written:
        os.fsync(written.fileno())
    os.replace(partial, folder / FILE)


def read(folder: Path) -> tuple[State, dict[str, torch.Tensor]] | None:
    """State and tensors of the checkpoint in `folder`; None if there is none.

    Raises:
        CheckpointError: it is of another kind.
    """
    path = folder / FILE
    if not path.exists():
        return None
    with safe_open(path, "pt") as held:
        about = held.metadata() or {}
        if about.get("format") != _FORMAT:
            raise CheckpointError(f"{path}: format is {about.get('format')!r}, not {_FORMAT}")
        tensors = {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118
    return State(**json.loads(about["state"])), tensors


def restore(tensors: dict[str, torch.Tensor], draft: Draft, optimizer: Optimizers) -> None:
    """Put a checkpoint's parameters and moments into a draft and its optimizer, in place."""
    with torch.no_grad():
        draft.scale.copy_(tensors["scale"])
        for name, one in draft.named_parameters():
            one.copy_(tensors[f"model.{name}"])
            start = f"optimizer.{name}."
            moments = {
                key.removeprefix(start): value
                for key, value in tensors.items()
                if key.startswith(start)
            }
            # AdamW keeps its step count where the fused kernel wants it: beside the parameter.
            for key, value in moments.items():
                optimizer.moments(one)[key] = value.to(one.device)


def check_settings(state: State, settings: dict[str, Any], folder: Path) -> None:
    """Raises CheckpointError where a run was started with other settings than now."""
    for key, value in settings.items():
        if state.settings.get(key) != value:
            raise CheckpointError(
                f"{folder / FILE}: it was begun with {key} = {state.settings.get(key)!r}, the "
                f"recipe has {value!r}; use another --output, or remove the folder"
            )


class Log:
    """Lines of figures; opened at a step, it drops those of later ones."""

    def __init__(self, folder: Path, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / LOG
        kept = [line for line in lines(folder) if line["step"] <= step]
        self._path.write_text("".join(json.dumps(line) + "\n" for line in kept))

    def add(self, line: dict[str, Any]) -> None:
        with self._path.open("a") as out:
            out.write(json.dumps(line) + "\n")


def lines(folder: Path) -> list[dict[str, Any]]:
    """The figures logged so far; a line cut short by a crash is left out."""
    path = folder / LOG
    held = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in held if line.endswith("}")]
