"""Prompts: the same from the same, none of a held-out text, none of an unknown package."""

from __future__ import annotations

import random
from importlib import metadata
from pathlib import Path

import pytest
from sglang_spec.train import sources, subjects
from sglang_spec.train.prompts import PromptsError, build, read
from sglang_spec.train.recipe import Prompts

WANTED = Prompts(
    packages=("click==*",), documents=20, functions=9, completions=7, topics=30, arithmetic=5
)


def test_the_same_prompts_again(tmp_path: Path) -> None:
    one, two = build(WANTED, tmp_path / "1.xz"), build(WANTED, tmp_path / "2.xz")
    assert one.sha256 == two.sha256
    assert one.kinds == {"docs": 20, "code": 9, "completion": 7, "chat": 30, "math": 5}
    rows = read(tmp_path / "1.xz", one.sha256)
    assert len(rows) == len(set(rows)) == 71
    version = metadata.version("click")
    assert one.to_json()["packages"] == [
        {"name": "click", "version": version, "licence": "BSD-3-Clause"}
    ]
    assert all(len(text) < 1500 for _, text in rows)


def test_held_out_text_is_left_out(tmp_path: Path) -> None:
    free = build(WANTED, tmp_path / "1.xz")
    texts = [text for kind, text in read(tmp_path / "1.xz", None) if kind == "docs"]
    held = next(text for text in texts if len(text.split()) > 60)
    without = build(WANTED, tmp_path / "2.xz", ["before it " + held + " after it"])
    assert held not in [text for _, text in read(tmp_path / "2.xz", None)]
    assert without.left_out >= 1 > free.left_out
    assert without.kinds == free.kinds  # others take their place


def test_other_packages_are_refused(tmp_path: Path) -> None:
    for packages, words in (
        (("click==0.1",), "click==0.1, installed is"),
        (("requests==1",), "requests is not among the packages whose licence is known"),
    ):
        with pytest.raises(PromptsError, match=words):
            build(Prompts(packages=packages, documents=1), tmp_path / "1.xz")


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptsError, match="the prompts built here have"):
        build(Prompts(packages=("click==*",), topics=2, sha256="0" * 64), tmp_path / "1.xz")
    build(Prompts(packages=("click==*",), topics=2), tmp_path / "1.xz")
    with pytest.raises(PromptsError, match="remove the file, or take the key out"):
        read(tmp_path / "1.xz", "0" * 64)
    with pytest.raises(PromptsError, match="run `sglang-spec train prompts` first"):
        read(tmp_path / "2.xz", None)


def test_units(tmp_path: Path) -> None:
    source = tmp_path / "package"
    source.mkdir()
    (source / "test_not.py").write_text("def f():\n    'no'\n")
    (source / "broken.py").write_text("def f(:\n")
    (source / "good.py").write_text('def add(a, b):\n    """Sum of two."""\n    return a + b\n')
    (unit,) = sources.units(sources.Package("x", "1", "MIT", source))
    assert unit.name == "good.add" and unit.doc == "Sum of two."
    assert unit.head == 'def add(a, b):\n    """Sum of two."""'
    assert unit.code.endswith("return a + b")


def test_questions_are_many_and_different() -> None:
    made = list(subjects.questions(random.Random(0)))
    assert len(set(made)) > 9000
    assert not any(len(" ".join(word.split())) != len(word) for word in subjects.things())
