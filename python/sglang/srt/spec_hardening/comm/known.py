"""Every communication setting of SGLang 0.5.23, and what the plan does with it.

A test scans the flags and variables of the vendored tree: one that is not named here fails it, so
that a new release cannot add a setting that the plan passes over in silence.
"""

from __future__ import annotations

# What a name must contain to be taken for a communication setting.
WORDS = (
    "nccl",
    "all_reduce",
    "allreduce",
    "all_gather",
    "reduce_scatter",
    "symm_mem",
    "mscclpp",
    "p2p",
    "nvls",
    "mnnvl",
    "pcie_ipc",
    "quick_reduce",
    "custom_ar",
    "comm_backend",
    "quant_comm",
    "boundary_reduction",
    "max_connections",
)

DECIDED = "the plan decides or carries out"
SHOWN = "the plan reads and shows"
ELSEWHERE = "not about the reductions of a tensor parallel group on CUDA"

FLAGS = {
    "disable_custom_all_reduce": DECIDED,
    "flashinfer_allreduce_fusion_backend": DECIDED,
    "enforce_disable_flashinfer_allreduce_fusion": DECIDED,
    "enable_flashinfer_allreduce_fusion": DECIDED,
    "enable_nccl_nvls": SHOWN,
    "enable_symm_mem": SHOWN,
    "enable_mscclpp": SHOWN,
    "enable_torch_symm_mem": SHOWN,
    "enable_p2p_check": SHOWN,
    "nccl_port": ELSEWHERE,
    "pre_warm_nccl": ELSEWHERE,
    "boundary_reduction": ELSEWHERE,
    "speculative_boundary_reduction": ELSEWHERE,
    "enable_quant_communications": ELSEWHERE,
    "enable_aiter_allreduce_fusion": ELSEWHERE,
    "disable_aiter_allreduce_fusion_in_prefill": ELSEWHERE,
    "disable_aiter_allreduce_fusion_in_decode": ELSEWHERE,
    "enable_fused_moe_sum_all_reduce": ELSEWHERE,
    "dcp_comm_backend": ELSEWHERE,
}

VARIABLES = {
    "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": DECIDED,
    "SGLANG_PCIE_IPC_MAX_NUMEL": DECIDED,
    "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2": SHOWN,
    "SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB": SHOWN,
    "SGLANG_FORCE_CUSTOM_ALL_REDUCE_V2_PULL_SIZE_KB": SHOWN,
    "SGLANG_FORCE_CUSTOM_ALL_REDUCE_V2_PUSH_SIZE_KB": SHOWN,
    "SGLANG_SKIP_P2P_CHECK": SHOWN,
    "NCCL_CUMEM_ENABLE": SHOWN,
    "NCCL_NVLS_ENABLE": SHOWN,
    "NCCL_GRAPH_REGISTER": SHOWN,
    "NCCL_ALGO": SHOWN,
    "NCCL_MIN_NCHANNELS": DECIDED,
    "NCCL_MAX_NCHANNELS": SHOWN,
    "CUDA_DEVICE_MAX_CONNECTIONS": SHOWN,
    "SGLANG_DETERMINISTIC_NCCL_NCHANNELS": SHOWN,
    "NCCL_GRAPH_MIXING_SUPPORT": SHOWN,
    "NCCL_MNNVL_ENABLE": SHOWN,
    "SGLANG_NCCL_SO_PATH": SHOWN,
    "EP_REUSE_NCCL_COMM": ELSEWHERE,
    "ROCM_QUICK_REDUCE_CAST_BF16_TO_FP16": ELSEWHERE,
    "ROCM_QUICK_REDUCE_MAX_SIZE_BYTES_MB": ELSEWHERE,
    "ROCM_QUICK_REDUCE_QUANTIZATION": ELSEWHERE,
    "SGLANG_DEBUG_SYMM_MEM": ELSEWHERE,
    "SGLANG_DP_USE_REDUCE_SCATTER": ELSEWHERE,
    "SGLANG_EPLB_P2P_BATCH_CHUNK_SIZE": ELSEWHERE,
    "SGLANG_M3_ALLOW_CUSTOM_AR": ELSEWHERE,
    "SGLANG_NCCL_ALL_GATHER_IN_OVERLAP_SCHEDULER_SYNC_BATCH": ELSEWHERE,
    "SGLANG_OPT_USE_INKLING_CUSTOM_AR": ELSEWHERE,
    "SGLANG_SCHEDULER_SKIP_ALL_GATHER": ELSEWHERE,
    "SGLANG_USE_1STAGE_ALLREDUCE": ELSEWHERE,
    "SGLANG_SYMM_MEM_PREALLOC_GB_SIZE": ELSEWHERE,
}
