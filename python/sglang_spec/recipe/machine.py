"""A recipe on a machine: has it the GPUs, and what would its ranks reduce with?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from .problem import Problem
from .sections import OFF, Machine, Recipe

DEFAULT_MAX_BS = 128  # of captured graphs, where neither graphs nor requests are limited
DEFAULT_HIDDEN = 7168


def load_facts(path: Path | None) -> Any:
    """Facts of a recorded machine, or of this one; FactsError (a ValueError) names the file."""
    if path is not None:
        core: Any = import_module("sglang_spec.hardening.comm.core")
        return core.Facts.load(path)
    gather: Any = import_module("sglang_spec.hardening.comm.gather")
    return gather.gather(False)


def unfit(recipe: Recipe, facts: Any) -> Iterator[Problem]:
    """What of `[machine]` these facts do not have."""
    wanted, gpus = recipe.machine, facts.gpus
    if recipe.model.device == "cpu":
        return
    need = wanted.gpus or recipe.nodes.tp_size // recipe.nodes.count
    if len(gpus) < need:
        remedy = f"this machine has {len(gpus)}; --facts FILE replays another one"
        yield Problem("machine-gpus", recipe.file, "machine.gpus", need, remedy)
        return
    for gpu in gpus[:need]:
        other = list(_other(wanted, gpu))
        for key, value, has in other:
            remedy = f"this machine has {has}; take the recipe for it, or change the key"
            yield Problem(f"machine-{key}", recipe.file, f"machine.{key}", value, remedy)
        if other:  # the next GPUs would say the same
            return


def _other(wanted: Machine, gpu: Any) -> Iterator[tuple[str, Any, str]]:
    """Key, what is wanted and what is there, for each key that one GPU does not have."""
    if wanted.name is not None and wanted.name not in gpu.name:
        yield "name", wanted.name, gpu.name
    capability = ".".join(map(str, gpu.capability))
    if wanted.capability not in (None, capability):
        yield "capability", wanted.capability, capability
    gib = None if gpu.memory_mib is None else gpu.memory_mib / 1024
    if wanted.memory_gib is not None and gib is not None and gib < wanted.memory_gib:
        yield "memory_gib", wanted.memory_gib, f"{gib:.1f} GiB"


def comm_plan(recipe: Recipe, facts: Any, replayed: bool) -> Any:
    """The communication plan of the launch; None for one rank or a host without GPUs.

    Args:
        replayed: the facts are another machine's, of which this shell's variables say nothing.

    Raises:
        MeasuredError (a ValueError): `comm.plan` names a file that cannot be used.
    """
    if recipe.nodes.tp_size < 2 or recipe.model.device == "cpu":
        return None
    core: Any = import_module("sglang_spec.hardening.comm.core")
    own = {} if replayed else dict(os.environ)
    plan = recipe.comm.plan
    measured = core.Measured.load(plan) if plan not in (None, "auto") else None
    settings = core.Settings(
        tp_size=recipe.nodes.tp_size,
        nnodes=recipe.nodes.count,
        architecture=recipe.model.architecture,
        hidden_size=recipe.model.hidden_size or DEFAULT_HIDDEN,
        dtype=recipe.model.dtype if recipe.model.dtype not in (None, "auto") else "bfloat16",
        max_bs=recipe.limits.cuda_graph_max_bs
        or recipe.limits.max_running_requests
        or DEFAULT_MAX_BS,
        num_draft_tokens=recipe.draft.num_draft_tokens if recipe.draft else 1,
        chunked_prefill_size=recipe.limits.chunked_prefill_size or 8192,
        fusion_backend=None if recipe.comm.fusion == OFF else recipe.comm.fusion,
        enforce_disable_fusion=recipe.comm.fusion == OFF,
        disable_custom_all_reduce=recipe.comm.disable_custom_all_reduce,
    )
    environment = {**own, **recipe.extra.environment}
    return core.decide(facts, settings, environment, apply=plan == "auto", measured=measured)
