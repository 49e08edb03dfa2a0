"""Faults on demand, for tests: SGLANG_SPEC_FAULT=stage[:kind[:rank]].

`stage` is a name of `stages`; with the prefix `serving_` a stage of the cycle fails only after the
server was called ready. `kind` is raise (the default), hang, exit (SystemExit with code 0, the
sort that hides best), kill (SIGKILL to itself), shape or nan (a tensor of the stage is damaged,
where it has one). `rank` is the tensor-parallel rank; without it the fault is on every rank.

Refused unless SGLANG_TEST_MODE is set. Unset, `hit` and `damage` are one dictionary look-up. They
are called between device work, never inside a captured graph.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

from . import stages

VARIABLE = "SGLANG_SPEC_FAULT"
_AFTER_READY = "serving_"


class InjectedFault(RuntimeError):
    """Raised by a fault of kind `raise`."""


@dataclass(frozen=True)
class Fault:
    stage: str
    kind: str = "raise"
    rank: int | None = None
    after_ready: bool = False


def parse(text: str) -> Fault:
    """The fault `text` asks for; ValueError names what is wrong with it."""
    name, _, rest = text.partition(":")
    kind, _, rank = rest.partition(":")
    kind = kind or "raise"
    after_ready = name.startswith(_AFTER_READY)
    name = name.removeprefix(_AFTER_READY)
    cycle = {stage.name for stage in stages.CYCLE}
    known = cycle if after_ready else cycle | {stage.name for stage in stages.STAGES}
    if name not in known:
        raise ValueError(f"{VARIABLE}={text}: no stage {name!r}; there are {', '.join(known)}")
    kinds = (*stages.CONTROL_KINDS, *stages.BY_NAME[name].tensor_kinds)
    if kind not in kinds:
        raise ValueError(f"{VARIABLE}={text}: stage {name} takes {', '.join(kinds)}")
    if rank and not rank.isdigit():
        raise ValueError(f"{VARIABLE}={text}: {rank!r} is no tensor-parallel rank")
    return Fault(name, kind, int(rank) if rank else None, after_ready)


def from_environment() -> Fault | None:
    """The fault this process is to have; ValueError outside of tests or if it cannot be read."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    if not os.environ.get("SGLANG_TEST_MODE"):
        raise ValueError(
            f"{VARIABLE}={text} breaks the server on purpose and SGLANG_TEST_MODE is not set; "
            f"unset {VARIABLE}"
        )
    return parse(text)


_armed: dict[str, Fault] = {}
_ready = False


def arm(tp_rank: int) -> None:
    """Read the environment once, in the process that is this rank."""
    global _ready
    _ready = False
    _armed.clear()
    fault = from_environment()
    if fault is not None and fault.rank in (None, tp_rank):
        _armed[fault.stage] = fault


def mark_ready() -> None:
    """From here on the faults that wait for a ready server are live."""
    global _ready
    _ready = True


def hit(stage: str) -> None:
    """Fail here if this stage is to fail by control flow."""
    fault = _armed.get(stage)
    if fault is None or (fault.after_ready and not _ready):
        return
    if fault.kind == "raise":
        raise InjectedFault(f"injected fault in stage {stage}")
    if fault.kind == "exit":
        sys.exit(0)
    if fault.kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while fault.kind == "hang":
        time.sleep(3600)


def damage(stage: str, tensor: Any) -> Any:
    """`tensor`, or what a fault of kind shape (last entry of the first dimension missing) or nan
    (floating point only, in place) makes of it; None stays None."""
    fault = _armed.get(stage)
    if fault is None or tensor is None or (fault.after_ready and not _ready):
        return tensor
    if fault.kind == "shape":
        return tensor[:-1]
    if fault.kind == "nan" and tensor.is_floating_point():
        tensor.fill_(float("nan"))
    return tensor


def damage_fields(stage: str, holder: Any, *names: str) -> None:
    """`damage` for attributes of `holder`, set in place; those that are missing stay missing."""
    if stage in _armed and holder is not None:
        for name in names:
            setattr(holder, name, damage(stage, getattr(holder, name, None)))


def damage_model(stage: str, worker: Any) -> None:
    """Damage the model of a TpModelWorker if the stage asks for it: its norms become NaN, or its
    attention projections lose their last row."""
    if stage in _armed:
        part = {"nan": "norm", "shape": "qkv_proj"}.get(_armed[stage].kind)
        for name, weight in worker.model_runner.model.named_parameters():
            if part is not None and part in name:
                weight.data = damage(stage, weight.data)


def damage_head(draft_worker: Any) -> None:
    """Damage what the draft's output goes through: its token map, its head."""
    damage_fields("token_map", draft_worker, "hot_token_id")
    head = getattr(draft_worker.draft_runner.model, "lm_head", None)
    damage_fields("lm_head", head, "weight")
