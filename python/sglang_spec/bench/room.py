"""Whether a shape fits what it is to be served on, told before anything is started."""

from __future__ import annotations

import subprocess

import psutil

from .. import host
from .shape import Shape

# Of the memory, what weights may take: KV cache, graphs and the ring of a threshold want the rest.
WEIGHTS_SHARE = 0.85


def gpus_gb() -> list[float]:
    """Memory of each GPU that the driver knows."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode != 0:
        return []
    return [float(line) * 2**20 / 1e9 for line in done.stdout.splitlines()]


def check(shape: Shape, ranks: int, together: int = 1, have: list[float] | None = None) -> None:
    """Refuse by name what cannot be held; `have` are GPUs in gigabytes, by default this host's.

    `together` servers share them. On a CPU all ranks share the host's free memory.

    Raises:
        ValueError: too few GPUs, or too small ones.
    """
    if ranks not in (1, 2, 4, 8):
        raise ValueError(f"--tp-size {ranks}: heads and vocabularies divide by 1, 2, 4 and 8")
    if have is None:
        on_gpus = host.device() == "cuda"
        have = gpus_gb() if on_gpus else [psutil.virtual_memory().available / 1e9 / ranks] * ranks
    if len(have) < ranks:
        raise ValueError(f"--tp-size {ranks}: this host has {len(have)} GPUs")
    if shape.weights is None:
        return
    needed = shape.weights.gigabytes(ranks) * together
    room = WEIGHTS_SHARE * min(have[:ranks])
    if needed > room:
        each = f"{together} servers of shape" if together > 1 else "shape"
        wider = [more for more in (2, 4, 8) if more > ranks]
        fits = [more for more in wider if shape.weights.gigabytes(more) * together <= room]
        remedy = f"; --tp-size {fits[0]} would fit GPUs like these" if fits else ""
        fewer = "; fewer at a time (--together)" if together > 1 else ""
        raise ValueError(
            f"{each} {shape.name} at --tp-size {ranks}: {needed:.1f} GB of weights a rank, "
            f"there is room for {room:.1f} GB{remedy}{fewer}"
        )
