"""`sglang.launch_server` on a host whose free memory is known: a program for tests only.

Free memory is what `SPEC_TEST_MEMORY` says in bytes, less what the tensors of this process take; so
the sizes of the KV pools follow from `--mem-fraction-static` and not from what else the host does.
Sizing, allocation and everything after it are the server's own. Runs with plain SGLang, too.
"""

from __future__ import annotations

import gc
import os
import runpy

import torch
from sglang.srt.utils import common

VARIABLE = "SPEC_TEST_MEMORY"


def held() -> int:
    """Bytes of all tensors that Python knows of, shared ones once."""
    storages: dict[int, int] = {}
    for found in gc.get_objects():
        if type(found) in (torch.Tensor, torch.nn.Parameter):
            storage = found.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def free_memory() -> int:
    """Bytes on all NUMA nodes; upstream gives a rank the share of one."""
    return (int(os.environ[VARIABLE]) - held()) * len(common.get_cpu_ids_by_node())


if VARIABLE in os.environ:
    common.get_free_cpu_memory = free_memory

if __name__ == "__main__":
    runpy.run_module("sglang.launch_server", run_name="__main__")
