"""Reads `torch.save` files of plain tensors into numpy, running nothing that they hold.

The pickle inside is only data here: of the names it may call, the few that build tensors are known
and replaced by functions of this module; any other name is refused. Needs no torch.
"""

from __future__ import annotations

import collections
import gzip
import io
import pickle
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .tensorfile import Array, TensorFileError, decode

_STORAGES = {
    "FloatStorage": "F32",
    "DoubleStorage": "F64",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
}


@dataclass(frozen=True)
class _Storage:
    dtype: str
    data: Array


def read(path: Path) -> dict[str, Any]:
    """The saved dict; tensors in it as arrays, bfloat16 and float16 as float32.

    Raises:
        TensorFileError: not such a file, or one that holds more than plain data and tensors.
    """
    try:
        packed = path.suffix == ".gz"
        source = io.BytesIO(gzip.decompress(path.read_bytes())) if packed else path
        with zipfile.ZipFile(source) as archive:
            root = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
            loaded = _Reader(archive, root.removesuffix("data.pkl")).load()
    except (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error) as error:
        raise TensorFileError(f"{path} is no file of saved tensors: {error}") from error
    except (StopIteration, KeyError, EOFError, ValueError) as error:
        raise TensorFileError(f"{path} cannot be read as saved tensors: {error}") from error
    except pickle.UnpicklingError as error:
        raise TensorFileError(f"{path} holds more than tensors: {error}") from error
    if not isinstance(loaded, dict):
        raise TensorFileError(f"{path} holds a {type(loaded).__name__}, not a dict of tensors")
    return loaded


class _Reader(pickle.Unpickler):
    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(io.BytesIO(archive.read(root + "data.pkl")))
        self._archive = archive
        self._root = root

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
        }
        if (module, name) in known:
            return known[module, name]
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, saved: Any) -> _Storage:
        kind, dtype, key, _, _ = saved
        if kind != "storage" or dtype not in _STORAGES.values():
            raise pickle.UnpicklingError(f"it refers to {kind!r} {dtype!r}")
        return _Storage(dtype, decode(self._archive.read(f"{self._root}data/{key}"), dtype))


def _tensor(
    storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *rest: Any
) -> Array:
    if not isinstance(storage, _Storage):
        raise pickle.UnpicklingError("a tensor without a storage")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True) if n)
    if offset < 0 or min(stride, default=0) < 0 or (0 not in size and last >= storage.data.size):
        raise pickle.UnpicklingError("a tensor beyond its storage")
    item = storage.data.itemsize
    view = np.lib.stride_tricks.as_strided(
        storage.data[offset:], size, [step * item for step in stride], writeable=False
    )
    return view.copy()
