"""A dump: samples with the states of each slot, and a manifest that says what the slots are.

    manifest.json          what was captured, of which target, by which engine
    samples.jsonl          one line a finished sample: {"id", "file", "tokens", "loss_runs"}, the
                           last one only if the prompt had a loss mask: [[value, tokens], ...]
    samples/000/7.safetensors
        input_ids            [tokens] int64
        states               [tokens, slots * hidden], the slots side by side in order
        last_hidden_states   [tokens, hidden], after the final norm (what lm_head takes)

Folders of `.ckpt` and `.pt` files as other trainers keep them are read too (`foreign`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import torchfile
from .tensorfile import Array, TensorFile, TensorFileError

MANIFEST = "manifest.json"
SAMPLES = "samples.jsonl"
FORMAT = "sglang-spec-capture/1"
_STATES = ("states", "hidden_states", "aux_hidden_state", "aux_hidden_states")
_LAST = ("last_hidden_states", "hidden_state", "last_hidden_state", "target_hidden_states")


class DumpError(ValueError):
    """A dump that cannot be read, or that does not fit the other one."""


@dataclass(frozen=True)
class Sample:
    """States are [tokens, slots, hidden] float32; `last` is [tokens, hidden] or None."""

    id: str
    input_ids: Array | None
    states: Array
    last: Array | None = None
    loss_mask: Array | None = None


@dataclass(frozen=True)
class Dump:
    """An open dump. `labels[i]` names slot i; `loops[i]` is its loop index where known."""

    folder: Path
    labels: tuple[str, ...]
    loops: tuple[int | None, ...]
    hidden_size: int
    manifest: dict[str, Any] = field(default_factory=dict)
    files: tuple[tuple[str, Path], ...] = ()
    loss_runs: tuple[Any, ...] = ()

    def samples(self) -> Iterator[Sample]:
        """Every sample, one at a time, by its number."""
        for place in range(len(self.files)):
            yield self.sample(place)

    def sample(self, place: int) -> Sample:
        identity, file = self.files[place]
        sample = read_sample(identity, file, len(self.labels), self.hidden_size)
        runs = self.loss_runs[place] if self.loss_runs else None
        if not runs:
            return sample
        values, counts = zip(*runs, strict=True)
        return replace(sample, loss_mask=np.repeat(np.array(values, np.int64), counts))

    def __len__(self) -> int:
        return len(self.files)


def open_dump(folder: Path, labels: tuple[str, ...] | None = None, slots: int = 3) -> Dump:
    """Open a dump of ours, or a folder of other trainers' files.

    Args:
        labels: names for the slots; they replace those of a manifest.
        slots: number of slots of a folder without a manifest.

    Raises:
        DumpError: there is nothing that can be read.
    """
    manifest = folder / MANIFEST
    if manifest.is_file():
        return _own(folder, json.loads(manifest.read_text()), labels)
    return _foreign(folder, labels, slots)


def _own(folder: Path, manifest: dict[str, Any], labels: tuple[str, ...] | None) -> Dump:
    if manifest.get("format") != FORMAT:
        raise DumpError(f"{folder / MANIFEST}: format is {manifest.get('format')!r}, not {FORMAT}")
    slots = manifest["slots"]
    lines = (folder / SAMPLES).read_text().splitlines() if (folder / SAMPLES).exists() else []
    listed = sorted(map(json.loads, lines), key=lambda one: int(one["id"]))
    files = tuple((str(one["id"]), folder / one["file"]) for one in listed)
    names = labels or tuple(slot["takes"] for slot in slots)
    if len(names) != len(slots):
        raise DumpError(f"{folder} has {len(slots)} slots, {len(names)} labels are given")
    loops = tuple(slot["loop_index"] for slot in slots)
    runs = tuple(one.get("loss_runs") for one in listed)
    return Dump(folder, names, loops, int(manifest["hidden_size"]), manifest, files, runs)


def _foreign(folder: Path, labels: tuple[str, ...] | None, slots: int) -> Dump:
    files = [folder] if folder.is_file() else []
    for suffix in ("*.safetensors", "*.ckpt", "*.ckpt.gz", "*.pt"):
        files += sorted(folder.rglob(suffix)) if folder.is_dir() else []
    if not files:
        raise DumpError(f"{folder} holds neither {MANIFEST} nor .safetensors, .ckpt or .pt files")
    names = labels or tuple(f"slot {slot}" for slot in range(slots))
    held = _tensors(files[0])
    states = _first(held, _STATES, files[0])
    width = states.shape[-1] if states.ndim < 4 else states.shape[-1] * len(names)
    if width % len(names):
        raise DumpError(f"{files[0]}: width {width} does not divide into {len(names)} slots")
    loops = (None,) * len(names)
    identities = tuple(
        (str(file.relative_to(folder)) if file != folder else file.name, file) for file in files
    )
    return Dump(folder, names, loops, width // len(names), {}, identities)


def read_sample(identity: str, file: Path, slots: int, hidden: int) -> Sample:
    """One sample file of either kind."""
    held = _tensors(file)
    states = _first(held, _STATES, file)
    tokens = states.size // (slots * hidden)
    if tokens * slots * hidden != states.size:
        raise DumpError(f"{file}: states of shape {states.shape} are not {slots} slots of {hidden}")
    shaped = np.asarray(states, np.float32).reshape(tokens, slots, hidden)
    ids = held.get("input_ids")
    last = next((held[name] for name in _LAST if name in held), None)
    mask = held.get("loss_mask")
    return Sample(
        identity,
        None if ids is None else ids.reshape(-1),
        shaped,
        None if last is None else np.asarray(last, np.float32).reshape(tokens, -1),
        None if mask is None else mask.reshape(-1),
    )


def _tensors(file: Path) -> dict[str, Array]:
    if file.suffix == ".safetensors":
        opened = TensorFile(file)
        return {name: opened.read(name) for name in opened.names()}
    return {k: v for k, v in torchfile.read(file).items() if isinstance(v, np.ndarray)}


def _first(held: dict[str, Array], names: tuple[str, ...], file: Path) -> Array:
    for name in names:
        if name in held:
            return held[name]
    raise TensorFileError(f"{file} holds none of {', '.join(names)} (it has {sorted(held)})")
