"""Edits checkpoints for tests: a copy of a draft or target with its config or tensors changed."""

from __future__ import annotations

import json
import math
import shutil
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Config = dict[str, Any]


@dataclass
class Tensor:
    """Raw little-endian data with its safetensors dtype."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def item(self) -> int:
        return len(self.data) // math.prod(self.shape)

    def rows(self, count: int) -> Tensor:
        """The first `count` rows; rows beyond the last one repeat the first."""
        size = len(self.data) // self.shape[0]
        data = (self.data + self.data[:size] * max(0, count - self.shape[0]))[: size * count]
        return Tensor(self.dtype, (count, *self.shape[1:]), data)

    def columns(self, count: int) -> Tensor:
        """The first `count` columns of a matrix, repeated from the first if there are too few."""
        rows, width = self.shape
        row = [self.data[n * width * self.item :][: width * self.item] for n in range(rows)]
        taken = b"".join((one * (count // width + 1))[: count * self.item] for one in row)
        return Tensor(self.dtype, (rows, count), taken)


Tensors = dict[str, Tensor]


def integers(values: Iterable[int]) -> Tensor:
    listed = list(values)
    return Tensor("I64", (len(listed),), struct.pack(f"<{len(listed)}q", *listed))


def values_of(tensor: Tensor) -> list[int]:
    return list(struct.unpack(f"<{tensor.shape[0]}q", tensor.data))


def read_tensors(path: Path) -> Tensors:
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    data = raw[8 + length :]
    return {
        name: Tensor(entry["dtype"], tuple(entry["shape"]), data[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def write_tensors(path: Path, tensors: Tensors) -> None:
    header, place = {}, 0
    for name, tensor in tensors.items():
        end = place + len(tensor.data)
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [place, end],
        }
        place = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(tensor.data for tensor in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def copy(
    source: Path,
    folder: Path,
    config: Callable[[Config], None] | None = None,
    tensors: Callable[[Tensors], None] | None = None,
) -> Path:
    """A copy of a model folder, edited in place by `config` and `tensors`. Large files are linked
    unless `tensors` changes them."""
    folder.mkdir(parents=True)
    for file in source.iterdir():
        if file.suffix == ".safetensors":
            (folder / file.name).symlink_to(file.resolve())
        elif file.is_file():
            shutil.copyfile(file, folder / file.name)
    if config is not None:
        edited = json.loads((folder / "config.json").read_text())
        config(edited)
        (folder / "config.json").write_text(json.dumps(edited))
    if tensors is not None:
        weights = folder / "model.safetensors"
        held = read_tensors(weights)
        weights.unlink()
        tensors(held)
        write_tensors(weights, held)
    return folder
