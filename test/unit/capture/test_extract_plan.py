"""What a dump would capture, told from configs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.checkpoints import copy
from sglang_spec.capture.extract import plan
from sglang_spec.capture.send import ExtractError
from sglang_spec.models.tiny import TINY, tiny_pair


def test_every_layer_and_those_of_a_draft() -> None:
    pair = tiny_pair(TINY)
    assert plan(pair.target, None, None).loops == list(range(7))
    assert plan(pair.target, pair.draft, None).loops == [2, 4, 6]
    assert plan(pair.target, None, [0, 6]).slots == (("the embedding", 0), ("output of layer 5", 6))


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("num_hidden_layers", None, "[target-size]"),
        ("num_hidden_layers", "7", "num_hidden_layers = '7'"),
        ("hidden_size", None, "hidden_size = None"),
        ("architectures", [], "[config-unreadable]"),
        ("architectures", ["GPT2LMHeadModel"], "GPT2LMHeadModel cannot capture layers"),
    ],
)
def test_a_target_of_which_too_little_is_known(
    key: str, value: Any, says: str, tmp_path: Path
) -> None:
    target = copy(tiny_pair(TINY).target, tmp_path / "target", lambda c: c.update({key: value}))
    with pytest.raises(ExtractError) as refused:
        plan(target, None, None)
    assert says in str(refused.value)


def test_a_dump_needs_no_vocabulary(tmp_path: Path) -> None:
    target = copy(tiny_pair(TINY).target, tmp_path / "target", lambda c: c.pop("vocab_size"))
    assert plan(target, None, [1]).hidden_size == 256


def test_a_target_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExtractError, match="folder holds no config"):
        plan(tmp_path, None, None)


@pytest.mark.parametrize("loops", [[], [3, 1], [2, 2], [-1], [7]])
def test_loop_indices_that_cannot_be(loops: list[int]) -> None:
    with pytest.raises(ExtractError, match=r"from 0 \(the embedding\) to 6"):
        plan(tiny_pair(TINY).target, None, loops)
