"""The environment variables that bear on communication: who set them, and what upstream sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .names import CONNECTIONS, is_ours
from .settings import Settings


@dataclass(frozen=True)
class Variable:
    """by: "you", "sglang", "plan" or "measured"; source: where the value comes from."""

    name: str
    value: str
    by: str
    why: str
    source: str = ""


def of_user(environment: Mapping[str, str]) -> Iterable[Variable]:
    for name in sorted(environment):
        if is_ours(name):
            yield Variable(name, environment[name], "you", "set by you", "environment")


def of_sglang(settings: Settings) -> Iterable[Variable]:
    """What `Engine` of 0.5.23 sets for the ranks where nobody did (one node)."""
    if settings.device != "cuda":
        return
    symmetric = "1" if settings.enable_symm_mem else "0"
    nvls = "1" if settings.enable_symm_mem or settings.enable_nccl_nvls else "0"
    source = "sglang 0.5.23, srt/entrypoints/engine.py"
    yield Variable("NCCL_CUMEM_ENABLE", symmetric, "sglang", "1 for --enable-symm-mem", source)
    yield Variable("NCCL_NVLS_ENABLE", nvls, "sglang", "1 for --enable-nccl-nvls", source)
    yield Variable(CONNECTIONS, "8", "sglang", "unless set", source)
    if settings.graphs and settings.tp_size > 1:
        why = "registered buffers of captured collectives can hang"
        yield Variable("NCCL_GRAPH_REGISTER", "0", "sglang", why, "srt/arg_groups/parallel_hook.py")
    if settings.deterministic and settings.tp_size > 1:
        source = "srt/arg_groups/attention_hook.py"
        for name, value in (
            ("NCCL_ALGO", "allreduce:tree"),
            ("NCCL_MIN_NCHANNELS", "8"),
            ("NCCL_MAX_NCHANNELS", "8"),
        ):
            yield Variable(name, value, "sglang", "--enable-deterministic-inference", source)
