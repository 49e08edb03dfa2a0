"""The device that training runs on, and names of number formats."""

from __future__ import annotations

import torch


def here() -> torch.device:
    """The first GPU that is visible, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def dtype_of(name: str) -> torch.dtype:
    """bfloat16, float16 or float32."""
    return {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}[name]
