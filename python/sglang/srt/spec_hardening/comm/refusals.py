"""Explicit requests that cannot be met on this machine, found before anything is spawned or loaded.

Only what SGLang 0.5.23 would end with an error minutes later, or would drop in silence, is refused.
What it documents to fall back (torch symmetric memory, MSCCL++, NVLS) is a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .facts import Facts
from .measured import Measured
from .names import PCIE_IPC
from .settings import Settings

FUSION = "--flashinfer-allreduce-fusion-backend"
IPC_RANKS = (2, 4, 8)
# As upstream's environment reader takes them for true.
TRUE = ("1", "true", "yes", "y")


@dataclass(frozen=True)
class Refusal:
    setting: str
    value: str
    why: str
    remedy: str

    @property
    def line(self) -> str:
        return f"{self.setting} {self.value}: {self.why}. {self.remedy}"


def is_true(value: str | None) -> bool:
    return (value or "").strip().lower() in TRUE


def unmet(
    facts: Facts, settings: Settings, environment: Mapping[str, str], measured: Measured | None
) -> list[Refusal]:
    found = [_fusion(facts, settings), _pcie_ipc(facts, settings, environment)]
    if measured is not None and (why := measured.misfit(facts, settings.tp_size)):
        remedy = "Measure here with `sglang-spec comm-bench --plan FILE`, or give auto."
        found.append(Refusal("--speculative-comm-plan", measured.path, why, remedy))
    return [one for one in found if one is not None]


def _fusion(facts: Facts, settings: Settings) -> Refusal | None:
    backend = settings.fusion_backend
    if backend is None or settings.enforce_disable_fusion or settings.deterministic:
        return None
    if not facts.gpus or len(facts.gpus) < settings.tp_size // settings.nnodes:
        return None  # other launches fail for that, by name
    major = _major(facts)
    chip = f"these GPUs are {_chips(facts)}"
    leave = f"Leave out {FUSION} (or --enable-flashinfer-allreduce-fusion)"
    if major not in (9, 10):
        remedy = leave
        if not facts.full_nvlink(settings.tp_size):
            remedy += (
                "; on PCIe --speculative-comm-plan auto lets verify use the PCIe-IPC all-reduce "
                "where it fits"
            )
        why = f"FlashInfer's fused all-reduce has kernels for SM90 and SM10x only, and {chip}"
        return Refusal(FUSION, backend, why, remedy + ".")
    if backend == "cutedsl" and major != 10:
        why = f"the cutedsl backend needs SM10x, and {chip}"
        return Refusal(FUSION, backend, why, "Give auto or trtllm, or leave the flag out.")
    if settings.nnodes > 1 and backend == "trtllm":
        why = f"the trtllm backend serves one node, this launch has {settings.nnodes}"
        return Refusal(FUSION, backend, why, "Give mnnvl, or leave the flag out.")
    if settings.nnodes > 1 and major != 10:
        why = f"over {settings.nnodes} nodes fusion needs SM10x, and {chip}"
        return Refusal(FUSION, backend, why, leave + ".")
    return None


def _pcie_ipc(facts: Facts, settings: Settings, environment: Mapping[str, str]) -> Refusal | None:
    value = environment.get(PCIE_IPC)
    if not is_true(value) or settings.tp_size < 2:
        return None
    why = ""
    if settings.device != "cuda":
        why = f"it is for CUDA, the device is {settings.device}"
    elif settings.tp_size not in IPC_RANKS:
        why = f"its kernels are for {IPC_RANKS} ranks, this launch has {settings.tp_size}"
    elif settings.nnodes > 1:
        why = f"it works within one host, this launch has {settings.nnodes} nodes"
    elif settings.dtype != "bfloat16":
        why = f"it reduces bfloat16 only, this launch computes in {settings.dtype}"
    elif settings.deterministic:
        why = "--enable-deterministic-inference, and the order of its sums follows the batch"
    elif settings.attention_dp:
        why = "attention DP reduces over groups that it does not serve"
    elif facts.pcie_ipc is False:
        version = facts.versions.get("flashinfer", "not installed")
        why = f"the FlashInfer here ({version}) does not have it"
    elif facts.peers.state == "broken":
        why = f"writing into a peer's memory failed here ({_failed(facts)})"
    elif settings.second_stream:
        why = f"its workspace serves one stream, and {settings.second_stream} reduces on two"
    if not why:
        return None
    return Refusal(PCIE_IPC, str(value), why, f"Unset {PCIE_IPC}; NCCL then reduces.")


def _failed(facts: Facts) -> str:
    return ", ".join(facts.peers.failed[:4]) or facts.peers.why


def _major(facts: Facts) -> int:
    """Of device 0, which is the one upstream asks."""
    return facts.gpus[0].capability[0]


def _chips(facts: Facts) -> str:
    names = sorted({f"{gpu.name} (SM{gpu.capability[0]}{gpu.capability[1]})" for gpu in facts.gpus})
    return " and ".join(names)
