"""What GPUs this host has, for tests that select themselves: by capability and count, no names."""

from __future__ import annotations

from functools import lru_cache

import pytest
from sglang_spec import host


@lru_cache(maxsize=1)
def count() -> int:
    """Usable CUDA devices; 0 where there is no driver or the CPU engine is asked for."""
    if host.device() != "cuda":
        return 0
    import torch

    return torch.cuda.device_count()


def needs(gpus: int) -> pytest.MarkDecorator:
    """Skip unless this many GPUs are there; the reason says what is missing."""
    return pytest.mark.skipif(
        count() < gpus, reason=f"needs {gpus} CUDA GPU(s), this host has {count()}"
    )
