"""What this host is, and the environment a CPU engine needs. Imports without torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# The engine's own switches. torch.compile would cost 15 s and a C++ compiler at the first request
# and was measured to bring nothing on this path; a hub that cannot be reached would be asked in
# vain for checkpoints that lie on disk.
CPU_ENVIRONMENT: Mapping[str, str] = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def has_cuda_driver() -> bool:
    """Whether an NVIDIA driver is loaded (nothing is said about how many GPUs it has)."""
    return Path("/proc/driver/nvidia/version").exists()


def device() -> str:
    """`cuda` or `cpu`; SGLANG_TARGET_DEVICE wins over what the host shows."""
    return os.environ.get("SGLANG_TARGET_DEVICE") or ("cuda" if has_cuda_driver() else "cpu")


def engine_environment(threads: int = 1) -> dict[str, str]:
    """The environment for an engine process on this host.

    `threads` is the OpenMP width of each rank: more threads in total than cores collapse the
    throughput, so two servers on two cores take one thread each. What the caller's own
    environment sets wins.
    """
    if device() != "cpu":
        return dict(os.environ)
    return {**CPU_ENVIRONMENT, "OMP_NUM_THREADS": str(threads), **os.environ}
