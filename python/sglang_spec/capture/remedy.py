"""What to write into the draft's config so that the engine captures what another dump holds."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .compare import Comparison
from .dump import Dump


def remedy(comparison: Comparison, b: Dump) -> str | None:
    """The list of ids that makes B capture the layers that A's slots are; None if it does already
    or if A's layers are not known for certain.

    `b` must be a dump of this tool: its manifest says how the target's family reads ids.
    """
    if comparison.same or not all(match.certain for match in comparison.matches_a):
        return None
    loops = [match.loop for match in comparison.matches_a]
    known = [loop for loop in loops if loop is not None]
    architecture, layers = b.manifest.get("architecture"), b.manifest.get("layers")
    if len(known) != len(loops) or architecture is None or layers is None:
        return None
    if 0 in known:
        return "A itself holds the embedding; make the training dump again before training on it"
    order = sorted(range(len(known)), key=known.__getitem__)
    ids = ids_for(architecture, sorted(known), int(layers))
    if ids is None:
        return None
    text = f"write eagle_aux_hidden_state_layer_ids {ids} into the draft's config"
    if order != list(range(len(order))):
        text += (
            f", and permute the column blocks of fc to {order} (entry j names the old block that "
            "becomes block j): states are handed over in layer order"
        )
    return text


def ids_for(architecture: str, loops: list[int], layers: int) -> list[int] | None:
    """Ids that this family captures at these loop indices; None if no list does."""
    families: Any = import_module("sglang_spec.hardening.contract.families")
    family = families.FAMILIES.get(architecture)
    if family is None:
        return None
    for candidate in ([loop - 1 for loop in loops], loops):
        if list(family.loop_indices(tuple(candidate), layers)) == loops:
            return candidate
    return None
