"""Tensors of `.bin` checkpoints, read with weights-only loading and without their data.

Needs torch; without it the contract says that the weights were not looked at.
"""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

from .report import Findings
from .safetensors_header import TensorInfo

_DTYPES = {
    "torch.bfloat16": "BF16",
    "torch.float16": "F16",
    "torch.float32": "F32",
    "torch.float64": "F64",
    "torch.bool": "BOOL",
    "torch.uint8": "U8",
    "torch.int8": "I8",
    "torch.int16": "I16",
    "torch.int32": "I32",
    "torch.int64": "I64",
}

# Names that upstream leaves out, by their ends.
_OF_A_TRAINER = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")


def read_tensors(folder: Path, findings: Findings) -> dict[str, TensorInfo] | None:
    """The tensors of the folder's `.bin` (else `.pt`) files; None if none could be read."""
    files = sorted(folder.glob("*.bin")) or sorted(folder.glob("*.pt"))
    files = [file for file in files if not file.name.endswith(_OF_A_TRAINER)]
    if not files:
        findings.refuse(
            "weights-missing",
            folder,
            "*.safetensors",
            None,
            "the folder holds no weights; download them or correct the path",
        )
        return None
    tensors: dict[str, TensorInfo] = {}
    for file in files:
        state = _load(file, "meta", findings)
        if state is None:
            return None
        for name, tensor in state.items():
            dtype = _DTYPES.get(str(tensor.dtype), str(tensor.dtype))
            tensors[name] = TensorInfo(name, dtype, tuple(tensor.shape), file, 0, 0)
    return tensors


def read_values(tensor: TensorInfo) -> list[int]:
    """The values of one small integer or boolean tensor."""
    import torch

    mapped = zipfile.is_zipfile(tensor.file)  # files of torch before 1.6 cannot be mapped
    state = torch.load(tensor.file, map_location="cpu", weights_only=True, mmap=mapped)
    return [int(value) for value in state[tensor.name].tolist()]


def is_pickled(tensor: TensorInfo) -> bool:
    return tensor.file.suffix in (".bin", ".pt")


def _load(file: Path, device: str, findings: Findings) -> dict[str, Any] | None:
    try:
        import torch
    except ImportError:
        findings.warn(
            "weights-unchecked",
            file,
            "weights",
            file.name,
            "torch is needed to read .bin files; run this where it is, or save as safetensors",
        )
        return None
    try:
        state = torch.load(file, map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        findings.refuse(
            "weights-unsafe",
            file,
            "weights",
            _first_line(error),
            "only tensors may be pickled; load it where you trust it and save as safetensors",
        )
        return None
    except Exception as error:  # a broken pickle may raise anything, and whatever it is is told
        findings.refuse(
            "weights-unreadable",
            file,
            "weights",
            _first_line(error),
            "download or copy the file again, or load it elsewhere and save as safetensors",
        )
        return None
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and hasattr(tensor, "dtype") for name, tensor in state.items()
    ):
        findings.refuse(
            "weights-unreadable",
            file,
            "weights",
            type(state).__name__,
            "save a dict of tensors by their names",
        )
        return None
    return state


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
