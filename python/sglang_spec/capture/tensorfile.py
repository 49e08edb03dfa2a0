"""Safetensors to and from numpy. bfloat16, which numpy lacks, is read as float32."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_NUMPY = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}
_NAMES = {np.dtype(code): name for name, code in _NUMPY.items()}


class TensorFileError(ValueError):
    """Not a file of tensors that this module can read."""


class TensorFile:
    """A safetensors file whose tensors are read one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(length))
        except (struct.error, UnicodeDecodeError, json.JSONDecodeError, MemoryError) as error:
            raise TensorFileError(f"{path} is no safetensors file ({error})") from error
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self._header = header
        self._data = 8 + length

    def __contains__(self, name: str) -> bool:
        return name in self._header

    def names(self) -> list[str]:
        return sorted(self._header)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._header[name]["shape"])

    def dtype(self, name: str) -> str:
        return str(self._header[name]["dtype"])

    def read(self, name: str) -> Array:
        """The tensor; floats of 16 bits become float32."""
        if name not in self._header:
            raise TensorFileError(f"{self.path} holds no {name}")
        entry = self._header[name]
        begin, end = entry["data_offsets"]
        with self.path.open("rb") as file:
            file.seek(self._data + begin)
            raw = file.read(end - begin)
        return decode(raw, entry["dtype"]).reshape(entry["shape"])


def decode(raw: bytes, dtype: str) -> Array:
    """A flat array of raw little-endian data of a safetensors dtype."""
    if dtype == "BF16":
        halves = np.frombuffer(raw, "<u2").astype(np.uint32)
        return (halves << 16).view(np.float32)
    if dtype not in _NUMPY:
        raise TensorFileError(f"no numpy type for {dtype}")
    array = np.frombuffer(raw, _NUMPY[dtype])
    return array.astype(np.float32) if dtype == "F16" else array


def to_bfloat16(array: Array) -> bytes:
    """Raw bfloat16 of a float array, rounded to nearest even as torch does."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    kept = np.where(np.isnan(array), bits | 0x400000, rounded)
    return bytes((kept >> 16).astype("<u2").tobytes())


def write(
    path: Path,
    tensors: Mapping[str, Array],
    bfloat16: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a safetensors file, whole or not at all. With `bfloat16`, floats are stored as that."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    blobs, place = [], 0
    for name, array in tensors.items():
        short = bfloat16 and array.dtype.kind == "f"
        blob = to_bfloat16(array) if short else np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": "BF16" if short else _NAMES[array.dtype.newbyteorder("<")],
            "shape": list(array.shape),
            "data_offsets": [place, place + len(blob)],
        }
        blobs.append(blob)
        place += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with scratch.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(blobs)
    scratch.replace(path)
