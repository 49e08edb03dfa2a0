"""What a rank really reduces with, read off its tensor parallel group once it is built.

Called by: `start.prove`; rank 0's is `communication_in_use` of `/server_info`.
"""

from __future__ import annotations

import os
from typing import Any

from . import vote
from .names import is_ours


def of_rank(group: Any) -> dict[str, Any]:
    """The libraries of `group` (a GroupCoordinator), the rank's environment, and the votes.

    Empty for one rank. pcie_ipc_bytes: the largest message of its workspace, 0 if there is none.
    """
    if group is None or group.world_size < 2:
        return {}
    custom, ipc = group.ca_comm, group.pcie_ipc_comm
    symm = group.torch_symm_mem_comm
    return {
        "ranks": group.world_size,
        "device": str(group.device),
        "custom_all_reduce": type(custom).__name__ if _on(custom) else None,
        "pcie_ipc_bytes": ipc.max_numel * 2 if _on(ipc) else 0,
        "torch_symmetric_memory": _on(symm),
        "mscclpp": _on(group.pymscclpp_comm),
        "nccl": getattr(group.pynccl_comm, "nccl_version", None),
        "votes": dict(vote.outcomes),
        "variables": {name: value for name, value in sorted(os.environ.items()) if is_ours(name)},
    }


def _on(library: Any) -> bool:
    return library is not None and not library.disabled
