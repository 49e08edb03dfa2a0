"""What `comm-bench` writes down: where its figures come from, and the plan file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from typing import Any


def provenance(ranks: int, rounds: int, device: str, facts: Any) -> dict[str, Any]:
    """When, on what and with what it was measured."""
    module: Any = import_module("sglang_spec.hardening.provenance")
    tree = module.read()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "sglang": tree.version,
        "patch_set": tree.patch_set,
        "versions": facts.versions,
        "gpus": [gpu.name for gpu in facts.gpus],
        "ranks": ranks,
        "rounds": rounds,
        "device": device,
        "python": sys.version.split()[0],
        "multicast": "off",
        "cores": os.cpu_count(),
    }


def measured(results: Mapping[str, Any], facts: Any, path: str) -> Any:
    """The plan file of this machine: the choice of the set-up as it is."""
    core: Any = import_module("sglang_spec.hardening.comm.core")
    setup = results["setups"]["as-is"]
    chosen = setup["chosen"]
    date = results["provenance"]["date"][:10]
    partial = results.get("partial", {}).get("as-is")
    why = (
        f"comm-bench {date}: {chosen['ratio']:.2f} of plain SGLang ({setup['plain']}) "
        f"from 16 to 512 KiB{f'; partial: {partial}' if partial else ''}"
    )
    ranks = results["provenance"]["ranks"]
    return core.Measured(
        path=path,
        tp_size=ranks,
        machine=facts.machine(ranks),
        variables=setup["candidates"].get(chosen["nccl"], {}),
        custom_all_reduce=chosen["custom"],
        pcie_ipc_bytes=chosen["ipc_bytes"],
        why=why,
        date=date,
    )
