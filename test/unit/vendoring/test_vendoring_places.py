"""Our modules moved to upstream's folders: every form of import still binds the same names."""

from __future__ import annotations

from pathlib import Path

import pytest
from vendoring.errors import VendoringError
from vendoring.layout import Layout
from vendoring.places import Places, known_modules, read_places

OWN = "python/sglang/srt/spec_hardening"
PLACES = Places({"policy": "srt/speculative/batch_policy", "deep": "srt/managers/deep_one"})
KNOWN = frozenset(
    f"sglang.srt.spec_hardening.{name}" for name in ("policy", "deep", "deep.part", "deep.other")
)


def rewritten(text: str, name: str = "python/sglang/srt/engine.py") -> str:
    return PLACES.rewritten(name, text.encode(), KNOWN).decode()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "from sglang.srt.spec_hardening import policy",
            "from sglang.srt.speculative import batch_policy as policy",
        ),
        (
            "from sglang.srt.spec_hardening import policy as p",
            "from sglang.srt.speculative import batch_policy as p",
        ),
        (
            "from sglang.srt.spec_hardening.policy import a, b as c",
            "from sglang.srt.speculative.batch_policy import a, b as c",
        ),
        (
            "from sglang.srt.spec_hardening.deep import part, name",
            "from sglang.srt.managers.deep_one import part\n"
            "from sglang.srt.managers.deep_one import name",
        ),
        (
            "from sglang.srt.spec_hardening import (\n    deep,\n    policy,  # both\n)",
            "from sglang.srt.managers import deep_one as deep\n"
            "from sglang.srt.speculative import batch_policy as policy",
        ),
        ("from sglang.srt.spec_hardening2 import x", "from sglang.srt.spec_hardening2 import x"),
    ],
)
def test_imports_of_a_patched_file(old: str, new: str) -> None:
    text = "import os\n\n{}\nX = 'sglang.srt.spec_hardening'\n"
    assert rewritten(text.format(old)) == text.format(new)
    indented = "def f():\n    {}\n    return policy\n"
    one_line = old.replace("\n", "").replace("(    ", "(").replace("  # both", "")
    assert rewritten(indented.format(one_line)) == indented.format(new.replace("\n", "\n    "))


POLICY, DEEP = "sglang.srt.speculative", "sglang.srt.managers"


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("policy", "from . import deep", f"from {DEEP} import deep_one as deep"),
        ("policy", "from .deep import f", f"from {DEEP}.deep_one import f"),
        ("deep/__init__", "from .part import f", f"from {DEEP}.deep_one.part import f"),
        ("deep/part", "from . import other", f"from {DEEP}.deep_one import other"),
        ("deep/part", "from .. import policy", f"from {POLICY} import batch_policy as policy"),
        ("deep/part", "from ..policy import f", f"from {POLICY}.batch_policy import f"),
    ],
)
def test_relative_imports_between_our_modules(name: str, old: str, new: str) -> None:
    assert rewritten(old + "\n", f"{OWN}/{name}.py") == new + "\n"


def test_long_imports_are_wrapped() -> None:
    names = ", ".join(f"a_rather_long_name_{n}" for n in range(4))
    lines = rewritten(f"from sglang.srt.spec_hardening.policy import {names}\n").splitlines()
    assert lines[0].endswith("import (") and lines[-1] == ")" and max(map(len, lines)) <= 88


def test_docstrings_do_not_name_our_patches() -> None:
    text = "Called by: `srt/a.py` (patch `one`) and `b.py` (patches\n`two`, `three`).\n"
    found = rewritten(f'"""{text}"""\n', f"{OWN}/policy.py")
    assert found == '"""Called by: `srt/a.py` and `b.py`.\n"""\n'


def test_paths() -> None:
    assert PLACES.path(f"{OWN}/policy.py") == "python/sglang/srt/speculative/batch_policy.py"
    assert PLACES.path(f"{OWN}/deep/part.py") == "python/sglang/srt/managers/deep_one/part.py"
    assert (
        PLACES.path(f"{OWN}/deep/__init__.py") == "python/sglang/srt/managers/deep_one/__init__.py"
    )
    assert PLACES.path(f"{OWN}/__init__.py") == ""
    assert PLACES.path("test/registered/unit/test_a.py") == "test/registered/unit/test_a.py"


def test_a_module_without_a_place_is_named() -> None:
    with pytest.raises(VendoringError, match="place") as caught:
        PLACES.path(f"{OWN}/other.py")
    assert caught.value.value == "other"


def test_an_import_that_cannot_be_rewritten_is_named() -> None:
    with pytest.raises(VendoringError, match="rewritten"):
        rewritten("import sglang.srt.spec_hardening.policy\n")


def test_no_places_means_that_nothing_moves(tmp_path: Path) -> None:
    places = read_places(Layout(tmp_path))
    text = b"from sglang.srt.spec_hardening import policy\n"
    assert places.rewritten("python/sglang/srt/engine.py", text, KNOWN) == text
    assert places.path(f"{OWN}/policy.py") == f"{OWN}/policy.py"


@pytest.mark.parametrize("text", ["[modules]\na = 1\n", "[words]\na = 'b'\n", "modules = 3\n", "["])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "patches").mkdir()
    (tmp_path / "patches" / "places.toml").write_text(text)
    with pytest.raises(VendoringError) as caught:
        read_places(Layout(tmp_path))
    assert caught.value.file == "patches/places.toml"


def test_modules_are_known_by_their_files(tmp_path: Path) -> None:
    for name in ("__init__.py", "policy.py", "deep/__init__.py", "deep/part.py", "deep/other.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert known_modules(tmp_path) == KNOWN
