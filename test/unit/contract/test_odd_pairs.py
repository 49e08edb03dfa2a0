"""Pairs that nobody meant to write: refused by name or accepted for a reason, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.checkpoints import copy
from kit.odd_pairs import ODD, Odd
from sglang_spec.hardening.contract import check_pair
from sglang_spec.models.pair import Pair


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.name)
def test_odd_pair(odd: Odd, tiny: Pair, tiny_half: Pair, tmp_path: Path) -> None:
    base = tiny_half if odd.reduced else tiny
    target = copy(base.target, tmp_path / "target", odd.target)
    draft = copy(base.draft, tmp_path / "draft", odd.config, odd.tensors)
    if odd.files is not None:
        odd.files(draft)
    report = check_pair(target, draft)
    # As another language's reader takes it: without NaN and Infinity.
    told = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert told["accepted"] == (not odd.code), report.error_text()
    if odd.code:
        first = report.problems[0]
        assert first.code == odd.code, report.error_text()
        assert first.file and first.key and first.remedy
        assert odd.says in str(first)
        assert odd.at in first.key
        return
    assert tuple(slot.loop_index for slot in report.slots) == odd.loops
    assert odd.says in "\n".join([*map(str, report.warnings), *report.notes])
    assert [warning.key for warning in report.warnings] == ([odd.at] if odd.at else [])


def test_names_are_told_apart() -> None:
    assert len({odd.name for odd in ODD}) == len(ODD)


Make = Callable[[dict[str, Any]], Any]


def _bin(pair: Pair, folder: Path, make: Make, **how: Any) -> Path:
    """The draft with its weights pickled."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    draft = copy(pair.draft, folder)
    state = load_file(draft / "model.safetensors")
    (draft / "model.safetensors").unlink()
    torch.save(make(state), draft / "pytorch_model.bin", **how)
    return draft


PICKLES: dict[str, tuple[Make, str]] = {
    "in-a-dict": (lambda state: {"state_dict": state}, "weights-unreadable"),
    "numbered": (lambda state: state | {0: state["norm.weight"]}, "weights-unreadable"),
    "a-list": (lambda state: list(state.values()), "weights-unreadable"),
    "sparse": (lambda state: state | {"x": state["fc.weight"].to_sparse()}, "weights-unreadable"),
    "d2t-a-column": (lambda state: state | {"d2t": state["d2t"][:, None]}, "d2t-length"),
    "d2t-a-scalar": (lambda state: state | {"d2t": state["d2t"][0]}, "d2t-length"),
}


@pytest.mark.filterwarnings("ignore:Validating sparse tensor")
@pytest.mark.parametrize("name", PICKLES)
def test_odd_pickle(name: str, tiny_half: Pair, tmp_path: Path) -> None:
    make, code = PICKLES[name]
    report = check_pair(tiny_half.target, _bin(tiny_half, tmp_path / "d", make))
    assert [problem.code for problem in report.problems] == [code], report.error_text()


def test_pickle_of_an_old_torch(tiny_half: Pair, tmp_path: Path) -> None:
    draft = _bin(tiny_half, tmp_path / "d", dict, _use_new_zipfile_serialization=False)
    assert check_pair(tiny_half.target, draft).accepted


def test_pickle_with_an_optimizer_beside_it(tiny_half: Pair, tmp_path: Path) -> None:
    draft = _bin(tiny_half, tmp_path / "d", dict)
    (draft / "optimizer.bin").write_bytes(b"")
    assert check_pair(tiny_half.target, draft).accepted


@pytest.mark.parametrize("data", [b"", b"garbage" * 99, b"PK\5\6" + bytes(18)], ids=len)
def test_bytes_that_are_no_pickle(data: bytes, tiny_half: Pair, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    draft = copy(tiny_half.draft, tmp_path / "d")
    (draft / "model.safetensors").unlink()
    (draft / "pytorch_model.bin").write_bytes(data)
    (problem,) = check_pair(tiny_half.target, draft).problems
    assert problem.code in ("weights-unreadable", "weights-unsafe")
    assert problem.file == str(draft / "pytorch_model.bin") and problem.value


PATHS = {
    "": "no such folder",
    "~nobody-of-this-name/draft": "no such folder",
    "x" * 300: "no such folder",
    "acme/../draft": "no such folder",
    "acme/draft": "no such hub id in the local Hugging Face cache",
    "\udcff": "no such folder",
}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ascii(path[:12]))
def test_odd_path(path: str, tiny: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (problem,) = check_pair(tiny.target, path).problems
    assert problem.code == "draft-not-found" and problem.value == path
    assert PATHS[path] in problem.remedy


def test_a_file_in_place_of_a_folder(tiny: Pair) -> None:
    (problem,) = check_pair(tiny.target, tiny.draft / "config.json").problems
    assert problem.code == "draft-not-found" and "this is a file" in problem.remedy
