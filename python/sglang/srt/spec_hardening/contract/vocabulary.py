"""The maps between the draft's reduced vocabulary and the target's, by their values.

`d2t[i]` is the target id of draft id `i`, minus `i`; `t2d[t]` is true if the draft has a row for
target id `t`. Without `d2t` upstream takes draft ids for target ids, and nothing is accepted.
"""

from __future__ import annotations

import array
import sys
from collections.abc import Mapping

from . import pickled
from .checkpoint import Checkpoint
from .report import Findings
from .safetensors_header import TensorInfo, read_bytes

_CODES = {"I64": "q", "I32": "i", "I16": "h", "BOOL": "B", "U8": "B"}


def check_maps(
    tensors: Mapping[str, TensorInfo],
    draft: Checkpoint,
    vocab: int,
    draft_vocab: int,
    findings: Findings,
) -> None:
    """Refuses maps that are missing, of the wrong length, out of range or at odds."""
    d2t, t2d = tensors.get("d2t"), tensors.get("t2d")
    if d2t is None:
        if draft_vocab != vocab:
            findings.refuse(
                "d2t-missing",
                draft.folder,
                "d2t",
                None,
                f"the draft has {draft_vocab} of {vocab} tokens and nothing says which; the "
                "checkpoint must hold d2t (target id minus draft id, one integer a draft token)",
            )
        return
    if d2t.shape != (draft_vocab,):
        findings.refuse(
            "d2t-length",
            d2t.file,
            d2t.name,
            list(d2t.shape),
            f"it must have one entry for each of the {draft_vocab} rows of the draft's head "
            "(draft_vocab_size)",
        )
        return
    if d2t.dtype not in _CODES:
        return  # refused by its dtype already
    mask = _mask(t2d, vocab, findings)
    values = read_integers(d2t)
    targets = [value + row for row, value in enumerate(values)]
    if _absolute(values, targets, vocab, mask):
        findings.refuse(
            "d2t-absolute",
            d2t.file,
            d2t.name,
            values[:4],
            "it holds target ids; it must hold target id minus draft id",
        )
        return
    _check_targets(targets, d2t, vocab, findings)
    if mask is not None and not findings.has("d2t-range", "d2t-duplicate"):
        _compare(set(targets), mask, t2d, findings)


def read_integers(tensor: TensorInfo) -> list[int]:
    """The values of an integer or boolean tensor."""
    if pickled.is_pickled(tensor):
        return pickled.read_values(tensor)
    values = array.array(_CODES[tensor.dtype], read_bytes(tensor))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def _mask(t2d: TensorInfo | None, vocab: int, findings: Findings) -> list[int] | None:
    if t2d is None or t2d.dtype not in _CODES:
        return None
    if t2d.shape != (vocab,):
        findings.refuse(
            "t2d-length",
            t2d.file,
            t2d.name,
            list(t2d.shape),
            f"it must have one entry for each of the target's {vocab} tokens",
        )
        return None
    return read_integers(t2d)


def _absolute(values: list[int], targets: list[int], vocab: int, mask: list[int] | None) -> bool:
    """Whether `values` are target ids themselves: they fit as such and do not as differences."""
    fits = len(set(values)) == len(values) and all(0 <= value < vocab for value in values)
    if not fits or values == [0] * len(values):
        return False
    if mask is not None:
        return all(mask[value] for value in values) and set(targets) != set(values)
    return not all(0 <= target < vocab for target in targets)


def _check_targets(targets: list[int], d2t: TensorInfo, vocab: int, findings: Findings) -> None:
    seen: dict[int, int] = {}
    for row, target in enumerate(targets):
        if not 0 <= target < vocab:
            findings.refuse(
                "d2t-range",
                d2t.file,
                f"{d2t.name}[{row}]",
                target - row,
                f"draft token {row} would be target token {target}, the target has 0 to "
                f"{vocab - 1}",
            )
            return
        if target in seen:
            findings.refuse(
                "d2t-duplicate",
                d2t.file,
                f"{d2t.name}[{row}]",
                target - row,
                f"draft tokens {seen[target]} and {row} are both target token {target}; "
                "each draft token needs its own",
            )
            return
        seen[target] = row


def _compare(
    targets: set[int], mask: list[int], t2d: TensorInfo | None, findings: Findings
) -> None:
    marked = {target for target, bit in enumerate(mask) if bit}
    if t2d is not None and marked != targets:
        example = min(marked ^ targets)
        findings.refuse(
            "t2d-disagrees",
            t2d.file,
            f"{t2d.name}[{example}]",
            mask[example],
            f"d2t and t2d name different tokens ({len(targets)} and {len(marked)}, "
            f"{len(marked ^ targets)} not in both); take both from the same training run",
        )
