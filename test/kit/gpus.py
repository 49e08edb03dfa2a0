"""What GPUs this host has, for tests that select themselves: by capability and count, no names."""

from __future__ import annotations

import importlib.util
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from sglang_spec import host

from .decode_setups import Setup


@lru_cache(maxsize=1)
def count() -> int:
    """Usable CUDA devices; 0 where there is no driver or the CPU engine is asked for."""
    if host.device() != "cuda":
        return 0
    import torch

    return torch.cuda.device_count()


@lru_cache(maxsize=1)
def capability() -> tuple[int, int]:
    """Compute capability of the first device, (0, 0) where there is none."""
    if count() == 0:
        return (0, 0)
    import torch

    return torch.cuda.get_device_capability(0)


def why_none() -> str:
    """What keeps this host from running the GPU tests; empty where it has a GPU."""
    if count() > 0:
        return ""
    asked = os.environ.get("SGLANG_TARGET_DEVICE")
    if host.device() != "cuda" and asked:
        return f"SGLANG_TARGET_DEVICE={asked}; unset it"
    if not host.has_cuda_driver():
        return "no NVIDIA driver is loaded (/proc/driver/nvidia/version is absent)"
    return "a driver is loaded and torch sees no device; look at CUDA_VISIBLE_DEVICES, nvidia-smi"


def needs(gpus: int) -> pytest.MarkDecorator:
    """Skip unless this many GPUs are there; the reason says what is missing."""
    return pytest.mark.skipif(
        count() < gpus, reason=f"needs {gpus} CUDA GPU(s), this host has {count()}"
    )


@lru_cache
def lacks_backend(name: str) -> str:
    """Why an attention backend cannot be used on this host, or nothing if it can."""
    if count() == 0:
        return ""  # that there is no GPU is said by `needs`
    major = capability()[0]
    if name == "flashinfer" and importlib.util.find_spec("flashinfer") is None:
        return "flashinfer: the package flashinfer is not installed"
    if name == "fa3":
        if major not in (8, 9):
            return f"fa3: kernels for compute capability 8 and 9, these GPUs have {major}"
        if not _kernel_files("sgl_kernel", "flash_ops*"):
            return "fa3: sgl_kernel holds no flash_ops library on this host"
    if name == "trtllm_mha" and major != 10:
        return f"trtllm_mha: kernels for compute capability 10, these GPUs have {major}"
    return ""


def _kernel_files(package: str, pattern: str) -> list[Path]:
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    return [path for folder in folders for path in Path(folder).rglob(pattern)]


def with_backend(setup: Setup) -> Any:
    """The setup as a test parameter that is skipped where its attention backend is missing."""
    reason = lacks_backend(setup.backend)
    marks = [pytest.mark.skipif(bool(reason), reason=reason)] if reason else []
    return pytest.param(setup, id=setup.name, marks=marks)
