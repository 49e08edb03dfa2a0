"""Reads the facts of this machine: NVML, /proc, /sys, and installed packages. No CUDA context.

Called by `launch` and by `sglang-spec doctor comm`. Only `test_peers` uses the GPUs, in a process
of its own that is ended if it hangs.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
import shutil
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from .facts import Facts, Gpu, PeerTest

logger = logging.getLogger(__name__)

_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_IOMMU_WORDS = re.compile(r"(?:\w*iommu|pci|pcie_acs_override)=\S+")


def gather(test_peers: bool = False) -> Facts:
    """The facts of this machine, GPUs in CUDA's order of the visible ones.

    Args:
        test_peers: also write into peers and read back; takes seconds and needs the GPUs.
    """
    facts = replace(_of_host(), **_of_gpus())
    if test_peers and len(facts.gpus) > 1:
        from .peers import test

        return replace(facts, peers=test(len(facts.gpus)))
    why = "not asked for" if len(facts.gpus) > 1 else f"{len(facts.gpus)} GPU(s)"
    return replace(facts, peers=PeerTest(why=why))


def _of_host() -> Facts:
    nodes = list(Path("/sys/devices/system/node").glob("node[0-9]*"))
    return Facts(
        cpu=_cpu(),
        sockets=_sockets(),
        numa_nodes=len(nodes) or None,
        kernel=_kernel(),
        versions=_versions(),
        pcie_ipc=_has_pcie_ipc(),
        nvcc=_has_nvcc(),
    )


def _of_gpus() -> dict[str, Any]:
    """gpus, links and what NVML adds to versions; nothing where there is no driver."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        logger.debug("NVML: %s", error)
        return {}
    try:
        handles = _visible(pynvml)
        versions = _versions()
        versions["driver"] = str(pynvml.nvmlSystemGetDriverVersion())
        cuda = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
        versions["cuda"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
        return {
            "gpus": tuple(_gpu(pynvml, handle) for handle in handles),
            "links": tuple(tuple(_link(pynvml, a, b) for b in handles) for a in handles),
            "versions": versions,
        }
    except pynvml.NVMLError as error:
        # MIG slices and integrated GPUs do not answer everything. No facts are better than some.
        logger.warning("NVML does not tell all of these GPUs: %s", error)
        return {}
    finally:
        pynvml.nvmlShutdown()


def _visible(pynvml: Any) -> list[Any]:
    """Handles of the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        count = pynvml.nvmlDeviceGetCount()
        return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    found = []
    for part in filter(None, (part.strip() for part in visible.split(","))):
        try:
            if part.isdigit():
                found.append(pynvml.nvmlDeviceGetHandleByIndex(int(part)))
            else:
                found.append(pynvml.nvmlDeviceGetHandleByUUID(part))
        except pynvml.NVMLError:
            break  # as CUDA does: what follows an unknown device is not visible
    return found


def _gpu(pynvml: Any, handle: Any) -> Gpu:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    try:
        memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) // (1024 * 1024)
    except pynvml.NVMLError:
        memory = None  # shared with the host
    return Gpu(
        name=str(pynvml.nvmlDeviceGetName(handle)),
        capability=(int(major), int(minor)),
        memory_mib=memory,
        numa=_numa(pynvml.nvmlDeviceGetPciInfo(handle).busId),
    )


def _numa(bus: Any) -> int | None:
    name = (bus.decode() if isinstance(bus, bytes) else str(bus)).lower()
    # NVML writes the domain with eight digits, the kernel with four.
    path = Path("/sys/bus/pci/devices") / name[-12:] / "numa_node"
    try:
        node = int(path.read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _link(pynvml: Any, a: Any, b: Any) -> str:
    if a is b:
        return "X"
    try:
        caps = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        if pynvml.nvmlDeviceGetP2PStatus(a, b, caps) == pynvml.NVML_P2P_STATUS_OK:
            return "NV"
    except pynvml.NVMLError as error:
        logger.debug("NVML, NVLink between peers: %s", error)
    try:
        level = int(pynvml.nvmlDeviceGetTopologyCommonAncestor(a, b))
    except pynvml.NVMLError:
        return "UNKNOWN"
    return _ANCESTORS.get(level, "UNKNOWN")


def _cpu() -> str:
    return next((value for key, value in _cpuinfo() if key == "model name"), "")


def _sockets() -> int | None:
    return len({value for key, value in _cpuinfo() if key == "physical id"}) or None


def _cpuinfo() -> list[tuple[str, str]]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    pairs = (line.partition(":") for line in lines)
    return [(key.strip(), value.strip()) for key, _, value in pairs]


def _kernel() -> dict[str, str]:
    """What bears on peer access: IOMMU words of the command line, groups, HMM of nvidia_uvm."""
    found = {}
    for name, path in (
        ("cmdline", "/proc/cmdline"),
        ("uvm_disable_hmm", "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"),
    ):
        try:
            found[name] = Path(path).read_text(encoding="utf-8").strip()
        except OSError:
            continue
    found["cmdline"] = " ".join(_IOMMU_WORDS.findall(found.get("cmdline", "")))
    try:
        groups = any(Path("/sys/kernel/iommu_groups").iterdir())
        found["iommu_groups"] = "yes" if groups else "no"
    except OSError:
        pass
    return found


def _versions() -> dict[str, str]:
    found = {}
    for name, packages in (
        ("nccl", ("nvidia-nccl-cu13", "nvidia-nccl-cu12")),
        ("flashinfer", ("flashinfer-python",)),
    ):
        for package in packages:
            try:
                found[name] = metadata.version(package)
                break
            except metadata.PackageNotFoundError:
                continue
    return found


def _has_pcie_ipc() -> bool:
    spec = importlib.util.find_spec("flashinfer")
    places = (spec.submodule_search_locations or []) if spec else []
    return any((Path(place) / "comm" / "pcie_ipc_ar.py").exists() for place in places)


def _has_nvcc() -> bool:
    """Whether kernels can be built here, or need not be because FlashInfer has them built."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    return shutil.which("nvcc") is not None or (Path(home) / "bin" / "nvcc").exists()
