"""The stages of a rank's life: their order, their time limits, what can be broken in them.

Construction runs through STAGES in order on every rank (a rank without a draft skips some); a
decode cycle runs through CYCLE again and again. Imports without torch: the parent process and the
documentation read this too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

# Kinds of fault that need no data at hand, and those that damage a tensor of the stage.
CONTROL_KINDS = ("raise", "hang", "exit", "kill")
TENSOR_KINDS = ("shape", "nan")

_HOUR = 3600.0


@dataclass(frozen=True)
class Stage:
    """One step of construction or of a cycle.

    `limit_s` is how long a rank may stay in it before the parent calls it hung: a bound on a
    hang, far above any honest duration (a terabyte of weights over a slow network takes hours,
    kernels compiled on first use many minutes). `tensor_kinds` are the faults of a tensor that
    can be injected here.
    """

    name: str
    what: str
    limit_s: float = 0.5 * _HOUR
    tensor_kinds: tuple[str, ...] = ()


STAGES = (
    Stage("arguments", "process set-up and configuration of the rank"),
    Stage("parallel", "process groups and communicators"),
    Stage("target_model", "target weights", 4 * _HOUR, TENSOR_KINDS),
    # Workers of other algorithms than EAGLE load their draft here.
    Stage("draft_arguments", "arguments of the speculative worker", 4 * _HOUR),
    Stage("draft_model", "draft weights", 4 * _HOUR, TENSOR_KINDS),
    Stage("draft_controller", "adaptive controller, streams, buffers"),
    Stage("target_pool", "KV pool of the target"),
    Stage("draft_pool", "KV pool of the draft"),
    Stage("token_map", "map from draft to target vocabulary", tensor_kinds=("shape",)),
    Stage("lm_head", "embedding and head shared with the target", tensor_kinds=("nan",)),
    Stage("target_attention", "attention backend of the target, layers to capture"),
    Stage("draft_attention", "attention backends of the draft"),
    Stage("target_graphs", "CUDA graphs of the target", 2 * _HOUR),
    Stage("draft_graphs", "CUDA graphs of the draft", 2 * _HOUR),
    Stage(
        "adaptive_states",
        "runtime states of adaptive speculation and of the batch threshold",
        2 * _HOUR,
    ),
    Stage("scheduler", "caches, policies, channels of the scheduler"),
    Stage("invariants", "check that every attribute is there"),
    Stage("self_test", "real cycles before the rank is called ready", _HOUR),
)

CYCLE = (
    Stage("prefill", "target prefill", tensor_kinds=TENSOR_KINDS),
    Stage("draft", "draft steps of a cycle", tensor_kinds=TENSOR_KINDS),
    Stage("verify", "target verify of a cycle", tensor_kinds=TENSOR_KINDS),
    Stage("draft_extend", "draft-extend of a cycle", tensor_kinds=TENSOR_KINDS),
)

SERVING = Stage("serving", "the event loop")

ALL = (*STAGES, *CYCLE, SERVING)
BY_NAME = {stage.name: stage for stage in ALL}
INDEX = {stage.name: number for number, stage in enumerate(ALL)}


def limit_of(name: str) -> float:
    """Seconds a rank may stay in the stage; 0 means for ever.

    SGLANG_SPEC_STAGE_TIMEOUT replaces the limits of construction: a number of seconds for every
    stage (0 switches all off), or a list `stage=seconds,stage=seconds`. Cycles have no limit of
    this sort: `health` watches them. ValueError if it cannot be read.
    """
    if name not in _CONSTRUCTION:
        return 0.0
    given = os.environ.get(TIMEOUT_VARIABLE, "")
    for part in filter(None, given.split(",")):
        stage, equals, seconds = part.rpartition("=")
        if equals and stage not in _CONSTRUCTION:
            raise ValueError(f"{TIMEOUT_VARIABLE}={given}: no stage {stage!r}")
        if stage in ("", name):
            return float(seconds)
    return BY_NAME[name].limit_s


TIMEOUT_VARIABLE = "SGLANG_SPEC_STAGE_TIMEOUT"
_CONSTRUCTION = frozenset(stage.name for stage in STAGES)
