"""The package under test comes from this checkout, on one thread, even on a host with CUDA."""

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

SOURCE = Path(__file__).resolve().parents[3] / "sgl-kernel" / "src"
OVERRIDE = "SGLANG_KERNEL_ALLOW_CPU_ON_CUDA"


def _loaded_version() -> str:
    """Import `sgl_kernel`, from the checkout unless the process has one already."""
    if "sgl_kernel" not in sys.modules:
        sys.path.insert(0, str(SOURCE))
        before = os.environ.get(OVERRIDE)
        os.environ[OVERRIDE] = "1"
        try:
            importlib.import_module("sgl_kernel")
        finally:
            if before is None:
                del os.environ[OVERRIDE]
            else:
                os.environ[OVERRIDE] = before
    return str(getattr(sys.modules["sgl_kernel"], "__version__", "unknown"))


if not _loaded_version().endswith("+cpu"):
    collect_ignore_glob = ["test_*.py"]  # the CUDA package is loaded in this process


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """One OpenMP thread for the length of a test module."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
