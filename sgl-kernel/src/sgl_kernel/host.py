"""Which host is this? The one question that keeps this package off machines with a CUDA driver.

The CUDA build of `sglang-kernel` has the same import name. If this package won on a GPU host, the
server would start and then lack nearly every kernel, so both the build and the import refuse there.
Standard library only: the build backend runs this file by path, before torch exists.
"""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

CUDA_REQUIREMENT = "sglang-kernel==0.4.10"
IMPORT_OVERRIDE = "SGLANG_KERNEL_ALLOW_CPU_ON_CUDA"
TARGET_DEVICE = "SGLANG_TARGET_DEVICE"
DRIVER_LIBRARY = "libcuda.so.1"
DRIVER_FOLDER = Path("/proc/driver/nvidia")


def cuda_driver_loads(library: str = DRIVER_LIBRARY) -> bool:
    """True if the CUDA driver library can be loaded by this process."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def build_refusal(environ: Mapping[str, str] = os.environ) -> str | None:
    """The reason not to build here, or None. `SGLANG_TARGET_DEVICE=cpu` always allows it."""
    if environ.get(TARGET_DEVICE) == "cpu":
        return None
    if DRIVER_FOLDER.exists():
        found = str(DRIVER_FOLDER)
    elif cuda_driver_loads():
        found = DRIVER_LIBRARY
    else:
        return None
    return (
        f"this host has an NVIDIA driver ({found}); sglang-kernel +cpu would shadow the CUDA "
        f"package. "
        f"Install `{CUDA_REQUIREMENT}` from the package index, "
        f"or set {TARGET_DEVICE}=cpu to build the CPU package all the same."
    )


def import_refusal(environ: Mapping[str, str] = os.environ) -> str | None:
    """The reason not to import here, or None. `SGLANG_KERNEL_ALLOW_CPU_ON_CUDA=1` allows it."""
    if environ.get(IMPORT_OVERRIDE) == "1":
        return None
    if cuda_driver_loads():
        found = f"{DRIVER_LIBRARY} loads"
    elif _torch_sees_cuda():
        found = "torch.cuda.is_available()"
    else:
        return None
    return (
        f"sgl_kernel: the CPU package (sglang-kernel +cpu) is installed on a host with CUDA "
        f"({found}). "
        f"Install the CUDA package instead: `pip install --force-reinstall {CUDA_REQUIREMENT}`; "
        f"for a CPU-only test on this host set {IMPORT_OVERRIDE}=1."
    )


def _torch_sees_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
