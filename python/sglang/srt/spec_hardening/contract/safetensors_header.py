"""The header of a safetensors file: names, dtypes, shapes and where the bytes lie. No data is read.

A file is eight bytes (length of the header, little endian), the header as JSON, then the tensors.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .json_file import JsonError, parse

# Bytes of one element; what is not listed (the 4- and 6-bit types) is not checked for its size.
ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
_LONGEST_HEADER = 100_000_000  # the format's own limit


class HeaderError(ValueError):
    """A file that is no safetensors file, or one that was cut short."""


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a checkpoint. `begin` and `end` are byte offsets from the file's start."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    begin: int
    end: int


def read_header(path: Path) -> dict[str, TensorInfo]:
    """The tensors of one file.

    Raises:
        HeaderError: not a safetensors file, or shorter than its header says.
        OSError: the file cannot be read.
    """
    if path.exists() and not path.is_file():
        raise HeaderError("it is not a regular file")
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        if len(prefix) < 8:
            raise HeaderError(f"the file has {size} bytes, which is no safetensors file")
        length = struct.unpack("<Q", prefix)[0]
        if length > _LONGEST_HEADER:
            raise HeaderError("the file does not begin like a safetensors file")
        if length > size - 8:
            raise HeaderError(f"the header alone needs {length + 8} bytes, the file has {size}")
        try:
            header = parse(file.read(length))
        except JsonError as error:
            raise HeaderError(f"the header is not JSON ({error})") from error
    return _tensors(header, path, 8 + length, size)


def _tensors(header: object, path: Path, data: int, size: int) -> dict[str, TensorInfo]:
    if not isinstance(header, dict):
        raise HeaderError("the header is not a JSON object")
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape = str(entry["dtype"]), tuple(_count(n) for n in entry["shape"])
            begin, end = (data + _count(offset) for offset in entry["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise HeaderError(f"the header's entry for {name} is malformed") from error
        item = ITEM_BYTES.get(dtype)
        if end < begin or (item and end - begin != item * math.prod(shape)):
            raise HeaderError(f"the header gives {name} {end - begin} bytes for {dtype} {shape}")
        if end > size:
            raise HeaderError(
                f"the file was cut short: {name} ends at byte {end}, the file has {size}"
            )
        found[name] = TensorInfo(name, dtype, shape, path, begin, end)
    _refuse_gaps(found.values(), data, size)
    return found


def _count(value: object) -> int:
    """A whole number that is not negative; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(value)
    return value


def _refuse_gaps(tensors: Iterable[TensorInfo], place: int, size: int) -> None:
    """The format's own rule: tensors follow each other from `place` to the end of the file."""
    for tensor in sorted(tensors, key=lambda tensor: (tensor.begin, tensor.end)):
        if tensor.begin != place:
            raise HeaderError(f"{tensor.name} begins at byte {tensor.begin}, not at {place}")
        place = tensor.end
    if place != size:
        raise HeaderError(f"the tensors end at byte {place}, the file has {size}")


def read_bytes(tensor: TensorInfo) -> bytes:
    """The tensor's raw little-endian bytes."""
    with tensor.file.open("rb") as file:
        file.seek(tensor.begin)
        return file.read(tensor.end - tensor.begin)
