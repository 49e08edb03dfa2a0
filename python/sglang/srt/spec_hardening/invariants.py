"""Every attribute of the EAGLE workers: there from the first line, and not None where it counts.

`declare` is the first statement of the workers' constructors. Upstream sets the attributes one by
one over four phases; a phase that is left early leaves an object that answers `/health` and dies
at the first decode with "has no attribute …". With all of them declared, a missing one is None,
and `check` says at the end of construction which.

A class that inherits from one of the tables' is held to the same table, but for what its own
constructor leaves out. Multi-layer EAGLE has classes and tables of its own. The draft worker of
frozen-KV MTP, which is a model worker too, and workers of other algorithms are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .attributes import BY_CLASS, DRAFT_WORKER, LEFT_OUT, Need, captures


class IncompleteWorkerError(RuntimeError):
    """A worker was left half done; the text names the class and the attributes."""


def declare(worker: Any, class_name: str) -> None:
    """Give `worker` every attribute of its class, None until it is set."""
    for name in BY_CLASS[class_name]:
        setattr(worker, name, None)


def check(worker: Any) -> None:
    """IncompleteWorkerError if a constructed EAGLE worker, its draft worker, or a state that it
    switches to, lacks something."""
    missing = _missing(worker)
    draft_worker = getattr(worker, "_draft_worker", None)
    if draft_worker is not None:
        missing += _missing(draft_worker)
    if not missing and getattr(worker, "adaptive_controller", None) is not None:
        missing += _missing_of_states(worker)
    if missing:
        raise IncompleteWorkerError(
            f"construction ended without {', '.join(missing)}; a phase was skipped or left early. "
            "The stages of the record say how far it came"
        )
    if _table(draft_worker) is DRAFT_WORKER:
        _check_token_map(draft_worker)


def _check_token_map(draft_worker: Any) -> None:
    """The worker's map must have one entry for each token of the draft: a short one is only noticed
    by the first draft token past its end."""
    own = getattr(draft_worker, "hot_token_id", None)
    models = getattr(getattr(draft_worker.draft_runner, "model", None), "hot_token_id", None)
    if own is None and models is not None:
        raise IncompleteWorkerError(
            f"EagleDraftWorker.hot_token_id is None, the draft has a map of {len(models)} tokens: "
            "what it drafts would be read as other tokens"
        )
    if own is not None and models is not None and own.shape != models.shape:
        raise IncompleteWorkerError(
            f"EagleDraftWorker.hot_token_id has shape {tuple(own.shape)}, the draft's own map "
            f"{tuple(models.shape)}"
        )


def _table(worker: Any) -> Mapping[str, Need]:
    """That of its class, or of the nearest class that it inherits from; empty if there is none."""
    kinds = (kind.__name__ for kind in type(worker).__mro__)
    return next((BY_CLASS[kind] for kind in kinds if kind in BY_CLASS), {})


def _missing(worker: Any) -> list[str]:
    kind = type(worker).__name__
    left_out = LEFT_OUT.get(kind, frozenset())
    return [
        f"{kind}.{name}"
        for name, need in _table(worker).items()
        if name not in left_out and getattr(worker, name, None) is None and need(worker)
    ]


def _missing_of_states(worker: Any) -> list[str]:
    """The states of adaptive speculation: one for each number of steps, none of them half built.

    A state that no batch size of the graphs leads to has none (an empty list; None, without an
    explicit list, is every size), and a prefill server captures no verify at start.
    """
    from sglang.srt.runtime_context import get_disagg

    verifies = get_disagg().disaggregation_mode != "prefill"
    controller = worker.adaptive_controller
    missing = []
    for steps in controller.candidate_steps:
        state = controller._states.get(steps)
        if state is None:
            missing.append(f"the state of {steps} draft steps")
            continue
        graphs = captures() and controller.params.cuda_graph_bs_for_step(steps) != []
        needed = {
            "target_attn_backend": True,
            "target_graph_runner": graphs and verifies,
            "draft_attn_backend": steps > 1,
            "cuda_graph_runner": graphs and steps > 1,
        }
        missing += [
            f"{name} of the state of {steps} draft steps"
            for name, is_needed in needed.items()
            if is_needed and getattr(state, name) is None
        ]
    return missing
