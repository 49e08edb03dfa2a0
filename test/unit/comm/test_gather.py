"""Facts read off a host, with NVML stood in for: it needs a driver, and hosts differ in answers."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

gather: Any = import_module("sglang_spec.hardening.comm.gather")


class NvmlError(Exception):
    pass


def nvml(gpus: int, link: str = "NV", memory: bool = True, kind: str = "") -> Any:
    """A module that answers as NVML does for `gpus` GPUs; `kind` is a call that it refuses."""
    found: Any = ModuleType("pynvml")
    found.NVMLError = NvmlError
    found.NVML_P2P_CAPS_INDEX_NVLINK, found.NVML_P2P_STATUS_OK = 2, 0

    def answer(name: str, value: Any) -> None:
        def call(*_: Any) -> Any:
            if name == kind:
                raise NvmlError(f"{name} is not supported")
            return value(*_) if callable(value) else value

        setattr(found, f"nvml{name}", call)

    def total(_: Any) -> Any:
        if not memory:
            raise NvmlError("not supported")
        return type("Memory", (), {"total": 96 << 30})

    def index(number: int) -> Any:
        if number >= gpus:
            raise NvmlError("not found")
        return number

    answer("Init", None)
    answer("Shutdown", None)
    answer("SystemGetDriverVersion", "580.1")
    answer("SystemGetCudaDriverVersion_v2", 13000)
    answer("DeviceGetCount", gpus)
    answer("DeviceGetHandleByIndex", index)
    answer("DeviceGetHandleByUUID", lambda uuid: int(uuid[-1]))
    answer("DeviceGetCudaComputeCapability", (12, 0))
    answer("DeviceGetMemoryInfo", total)
    answer("DeviceGetName", "NVIDIA RTX PRO 6000")
    answer("DeviceGetPciInfo", type("Pci", (), {"busId": b"00000000:ff:1f.7"})())
    answer("DeviceGetP2PStatus", 0 if link == "NV" else 1)
    answer("DeviceGetTopologyCommonAncestor", {"PIX": 10, "SYS": 50}.get(link, 99))
    return found


def of(monkeypatch: pytest.MonkeyPatch, visible: str | None = None, **kinds: Any) -> Any:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(**kinds))
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    return gather.gather()


@pytest.mark.parametrize(
    ("link", "told"), [("NV", "NV"), ("PIX", "PIX"), ("SYS", "SYS"), ("?", "UNKNOWN")]
)
def test_gpus_and_links(monkeypatch: pytest.MonkeyPatch, link: str, told: str) -> None:
    facts = of(monkeypatch, gpus=2, link=link)
    assert facts.links == (("X", told), (told, "X"))
    assert facts.gpus[0].capability == (12, 0) and facts.gpus[0].memory_mib == 96 * 1024
    assert facts.versions["driver"] == "580.1" and facts.versions["cuda"] == "13.0"
    assert facts.peers.state == "untested" and facts.numa_nodes


@pytest.mark.parametrize(
    ("visible", "count"), [("1", 1), ("2,0", 2), ("GPU-1,GPU-0", 2), ("0,7,1", 1), ("", 0)]
)
def test_what_is_visible_counts(monkeypatch: pytest.MonkeyPatch, visible: str, count: int) -> None:
    """As CUDA reads the variable: what follows an unknown device is not visible."""
    assert len(of(monkeypatch, visible, gpus=4).gpus) == count


def test_memory_that_is_shared_with_the_host_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of(monkeypatch, gpus=1, memory=False).gpus[0].memory_mib is None


@pytest.mark.parametrize("kind", ["Init", "DeviceGetCount", "DeviceGetCudaComputeCapability"])
def test_a_driver_that_does_not_answer_leaves_no_gpus(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A launch goes on without facts: they are to help it, not to end it."""
    facts = of(monkeypatch, gpus=2, kind=kind)
    assert facts.gpus == () and facts.links == ()


def test_a_host_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gather.gather().gpus == ()
