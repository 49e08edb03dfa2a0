"""Names of the environment variables that bear on communication. Imports nothing."""

from __future__ import annotations

PCIE_IPC = "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"
MAX_NUMEL = "SGLANG_PCIE_IPC_MAX_NUMEL"
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
V2 = "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2"
# Of the user's environment these are shown; every NCCL_ variable is.
OTHERS = (
    CONNECTIONS,
    "CUDA_VISIBLE_DEVICES",
    PCIE_IPC,
    MAX_NUMEL,
    V2,
    "SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB",
    "SGLANG_FORCE_CUSTOM_ALL_REDUCE_V2_PULL_SIZE_KB",
    "SGLANG_FORCE_CUSTOM_ALL_REDUCE_V2_PUSH_SIZE_KB",
    "SGLANG_DETERMINISTIC_NCCL_NCHANNELS",
    "SGLANG_NCCL_SO_PATH",
    "SGLANG_SKIP_P2P_CHECK",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST",
)


def is_ours(name: str) -> bool:
    return name.startswith("NCCL_") or name in OTHERS
