"""The table of families against upstream's own code: complete, and equal in what it computes."""

from __future__ import annotations

import pytest
from kit.upstream_source import SRT, Class, loop_indices, read_models
from sglang_spec.hardening.contract.families import FAMILIES, NOT_TARGETS, Family

MODELS = read_models()
CAPTURING = MODELS.capturing()
# Wrappers that hand the ids on unchanged, and the family whose code then reads them.
WRAPPERS = {
    "kimi_k25.py": "deepseek_v2.py",
    "mllama4.py": "llama.py",
    "gemma3_mm.py": "gemma3_causal.py",
}
LISTS: list[list[int] | None] = [None, [1, 29, 57], [2, 30, 58], [0, 1, 2], [3], [24, 30, 61]]
BOUNDARY = "in self.layers_to_capture"


def test_every_capturing_class_has_a_row() -> None:
    missing = sorted(CAPTURING.keys() - FAMILIES.keys() - NOT_TARGETS)
    assert not missing, (
        f"{missing} can capture layers for EAGLE3 and have no row: add each to "
        "contract/families.py (FAMILIES, or NOT_TARGETS if it is never a target)"
    )


def test_no_row_is_left_over() -> None:
    assert not sorted((FAMILIES.keys() | NOT_TARGETS) - CAPTURING.keys())
    assert not sorted(FAMILIES.keys() & NOT_TARGETS)


@pytest.mark.parametrize("architecture", sorted(FAMILIES))
def test_row_reads_ids_as_upstream_does(architecture: str) -> None:
    family, owner = FAMILIES[architecture], CAPTURING[architecture]
    assert family.source == WRAPPERS.get(owner.file, owner.file)
    reader = _reader(family, owner)
    for ids in LISTS:
        given = None if ids is None else tuple(ids)
        assert list(family.loop_indices(given, 61)) == loop_indices(reader, ids, 61)


def _reader(family: Family, owner: Class) -> Class:
    if owner.file not in WRAPPERS:
        return owner
    assert loop_indices(owner, [5, 7], 61) == [5, 7], "the wrapper hands the list on unchanged"
    return next(
        one
        for candidates in MODELS.classes.values()
        for one in candidates
        if one.file == family.source and one.method is not None
    )


# Where the loop that a family's model runs lies, if it is not in the file that reads the ids.
LOOPS = {"gemma4_mm.py": "gemma4_causal.py", "minimax_m3_vl.py": "minimax_m3.py"}


@pytest.mark.parametrize("family", sorted(set(FAMILIES.values()), key=lambda f: f.source))
def test_last_layer_is_captured_where_the_row_says_so(family: Family) -> None:
    text = (SRT / "models" / LOOPS.get(family.source, family.source)).read_text()
    found = any(
        f"{boundary} {BOUNDARY}" in text
        for boundary in ("self.end_layer", "num_layers", "len(self.layers)")
    )
    assert found == family.last_layer


def test_a_family_without_a_row_would_be_found() -> None:
    grown = type(MODELS)(
        {**MODELS.classes, "NewForCausalLM": (Class("new.py", ("LlamaForCausalLM",), None),)},
        (*MODELS.entries, ("NewForCausalLM", "new.py")),
    )
    assert set(grown.capturing()) - set(FAMILIES) - NOT_TARGETS == {"NewForCausalLM"}
