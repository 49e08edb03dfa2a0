"""From ids to slots: which layer's output each block of `fc`'s input is given, in one form."""

from __future__ import annotations

import itertools
from pathlib import Path

from .families import Convention, Family
from .report import Findings, Slot

EMBEDDING = "the embedding"


def takes(loop_index: int) -> str:
    """What is captured at a loop index, in words."""
    return EMBEDDING if loop_index == 0 else f"output of layer {loop_index - 1}"


def slots_of(loop_indices: tuple[int, ...]) -> tuple[Slot, ...]:
    return tuple(Slot(n, takes(index), index) for n, index in enumerate(loop_indices))


def check_ids(
    ids: tuple[int, ...] | None,
    family: Family,
    layers: int,
    key: str,
    file: Path,
    findings: Findings,
) -> tuple[Slot, ...]:
    """The slots of a draft that declares `ids` for a target of `layers` layers.

    Empty after a refusal. Upstream captures in layer order whatever the order of the list, takes a
    duplicate once, never reaches the boundary after the last layer in most families, and lets a
    negative id through.
    """
    if ids is None:
        return _default(family, layers, file, findings)
    as_layers = family.reads_as_layers(ids, layers)
    first, last = _range(family, layers, as_layers)
    accepted = True
    for place, entry in enumerate(ids):
        if not first <= entry <= last:
            _refuse_id(entry, f"{key}[{place}]", family, layers, as_layers, file, findings)
            accepted = False
    if not accepted:
        return ()
    for place, entry in enumerate(ids):
        if entry in ids[:place]:
            findings.refuse(
                "ids-duplicate",
                file,
                f"{key}[{place}]",
                entry,
                f"layer {entry} would be captured once and fc would get one block too few; "
                "name each layer once",
            )
            return ()
    if list(ids) != sorted(ids):
        _refuse_order(ids, key, file, findings)
        return ()
    indices = family.loop_indices(ids, layers)
    if family.convention is Convention.FIRST_ID and not as_layers:
        _warn_ambiguous(ids, indices, family, key, file, findings)
    return slots_of(indices)


def _range(family: Family, layers: int, as_layers: bool) -> tuple[int, int]:
    """The first and the last id that can be captured."""
    last_index = layers if family.last_layer else layers - 1
    return (0, last_index - 1) if as_layers else (1, last_index)


def _refuse_id(
    entry: int,
    key: str,
    family: Family,
    layers: int,
    as_layers: bool,
    file: Path,
    findings: Findings,
) -> None:
    first, last = _range(family, layers, as_layers)
    choose = f"choose from {first} to {last}"
    meaning = "layers" if as_layers else "loop indices"
    if entry == (-1 if as_layers else 0):
        code = "ids-embedding"
        why = "this is the embedding, not the output of a decoder layer"
    elif entry < 0:
        code, why = "ids-negative", "a negative id is never captured"
    elif entry == last + 1 and not family.last_layer and (not as_layers or entry == layers - 1):
        code = "ids-last-layer"
        why = (
            f"{takes(layers)} cannot be captured in this family ({family.source}): its loop takes "
            "a state only before the next layer"
        )
    else:
        code, why = "ids-range", f"the target has {layers} layers"
    findings.refuse(
        code, file, key, entry, f"{why}; ids of this family are {meaning} here, {choose}"
    )


def _refuse_order(ids: tuple[int, ...], key: str, file: Path, findings: Findings) -> None:
    order = sorted(range(len(ids)), key=ids.__getitem__)
    findings.refuse(
        "ids-order",
        file,
        key,
        list(ids),
        f"states are always handed over in layer order, {sorted(ids)}; if fc was trained on the "
        f"order given here, permute its column blocks to {order} (new block j = old block "
        f"{order}[j]) and sort the ids, else only sort the ids",
    )


def _warn_ambiguous(
    ids: tuple[int, ...],
    indices: tuple[int, ...],
    family: Family,
    key: str,
    file: Path,
    findings: Findings,
) -> None:
    got = ", ".join(str(index - 1) for index in indices)
    findings.warn(
        "ids-ambiguous",
        file,
        key,
        list(ids),
        f"in this family ({family.source}) a list that does not begin with 1 is read as loop "
        f"indices: the draft is given the outputs of layers {got}; if it was trained on the "
        f"outputs of layers {', '.join(map(str, ids))}, write {[entry + 1 for entry in ids]}",
    )


def _default(family: Family, layers: int, file: Path, findings: Findings) -> tuple[Slot, ...]:
    indices = family.loop_indices(None, layers)
    distinct = all(a < b for a, b in itertools.pairwise(indices))
    if not distinct or indices[0] < 1 or indices[-1] > layers - 1:
        findings.refuse(
            "ids-default",
            file,
            "eagle_config",
            None,
            f"the draft names no layers and the default for {layers} layers is {list(indices)}, "
            "which cannot be captured; name the layers it was trained on",
        )
        return ()
    findings.note(
        "the draft names no layers; the default of this family is taken: "
        + ", ".join(takes(index) for index in indices)
    )
    return slots_of(indices)


def check_stages(
    slots: tuple[Slot, ...],
    layers: int,
    stages: tuple[int, ...],
    key: str,
    file: Path,
    findings: Findings,
) -> None:
    """Only the last pipeline stage captures, and only before its own layers."""
    start = layers - stages[-1]
    lost = [slot for slot in slots if slot.loop_index < start]
    if lost:
        findings.refuse(
            "pipeline-stage",
            file,
            key,
            [slot.loop_index for slot in slots],
            f"{', '.join(slot.takes for slot in lost)} lies on an earlier pipeline stage; only "
            f"the last one captures, and it runs layers {start} to {layers - 1}: use tensor "
            "parallelism instead of pipeline stages",
        )
