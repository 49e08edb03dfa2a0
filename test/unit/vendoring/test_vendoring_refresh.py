"""`refresh`: patches whose neighbours moved are re-anchored; what conflicts is named."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kit.vendoring_project import Project

TOP = ("LINE_5 = 5\n", "LINE_5 = 5\nFIRST = 1\nSECOND = 2\n")
TAIL = ("LINE_30 = 30\n", "LINE_30 = 31\n")
NEAR = ("LINE_32 = 32\n", "LINE_32 = 33\n")  # within the context of TAIL


def patches(project: Project) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in project.layout.patches.iterdir()}


def order(project: Project, *slugs: str) -> None:
    """What a merge of two stacks does to the series."""
    project.layout.series.write_text(
        "# one file name a line\n" + "".join(f"{slug}.patch\n" for slug in slugs)
    )


def refresh(project: Project) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(project.fine("refresh", "--json"))
    return result


def changed_lines(patch: bytes) -> list[str]:
    _, diff = patch.decode().split("\n---\n", 1)
    return re.findall(r"^[+-](?![+-]).*$", diff, re.MULTILINE)


def test_nothing_to_do_writes_nothing(patched: Project) -> None:
    before = {path: path.stat().st_mtime_ns for path in patched.layout.patches.iterdir()}
    assert patched.fine("refresh") == "every patch applies exactly already\n"
    assert {path: path.stat().st_mtime_ns for path in patched.layout.patches.iterdir()} == before


def test_a_patch_whose_neighbour_moved_is_anchored_again(patched: Project) -> None:
    """To the byte as if it had been made in that place, there and back."""
    patched.patch("top", "srt/engine.py", *TOP)
    patched.patch("tail", "srt/engine.py", *TAIL)
    made = patches(patched)

    order(patched, "widen", "more-steps", "tail", "top")
    assert "fits -2 lines away" in patched.command("check").stdout
    assert refresh(patched)["moved"] == ["tail"]
    moved = patches(patched)
    assert moved["tail.patch"] != made["tail.patch"]
    assert changed_lines(moved["tail.patch"]) == changed_lines(made["tail.patch"])
    patched.fine("apply")
    patched.fine("check")
    assert patched.fine("export") == "patches/ holds this already\n"

    order(patched, "widen", "more-steps", "top", "tail")
    assert refresh(patched) == {
        "moved": ["tail"],
        "loose": [],
        "written": ["top.patch", "tail.patch", "README.md"],
    }
    assert patches(patched) == made


def test_a_hunk_on_the_first_line_moves_too(patched: Project) -> None:
    """git will not shift such a hunk with its whole context; here it fits all the same."""
    first = patched.layout.patches / "first.patch"
    patched.patch("first", "srt/args.py", "class Args:", "class Args(object):")
    made = first.read_bytes()
    patched.fine("drop", "first", "--why", "to put another before it")
    patched.fine("apply")
    patched.patch("head", "srt/args.py", "class Args:", "import os\n\n\nclass Args:")
    first.write_bytes(made)
    order(patched, "widen", "more-steps", "head", "first")
    done = refresh(patched)
    assert done["moved"] == ["first"] and done["loose"] == []
    patched.fine("apply")
    text = (patched.tree / "srt" / "args.py").read_text()
    assert text.startswith("import os\n\n\nclass Args(object):\n")


def test_changed_context_is_reported_as_loose(patched: Project) -> None:
    patched.patch("near", "srt/engine.py", *NEAR)
    patched.patch("tail", "srt/engine.py", *TAIL)
    made = patches(patched)
    order(patched, "widen", "more-steps", "tail", "near")
    done = refresh(patched)
    assert done["moved"] == [] and done["loose"] == ["tail", "near"]
    assert changed_lines(patches(patched)["tail.patch"]) == changed_lines(made["tail.patch"])
    order(patched, "widen", "more-steps", "near", "tail")
    text = patched.fine("refresh")
    assert "moved near; its context had changed: read it again" in text
    assert patches(patched) == made


def test_a_place_that_is_one_of_several_is_reported_as_loose(patched: Project) -> None:
    """git takes the nearest place. That may be the wrong one, so a person has to look."""
    block = "def f():\n    return 1\n\n\n"
    patched.patch("twins", "srt/engine.py", "LINE_9 = 9\n", f"LINE_9 = 9\n{block * 4}")
    old = block * 4
    patched.patch("third", "srt/engine.py", old, block * 2 + "def g():\n    return 1\n\n\n" + block)
    patched.patch("top", "srt/engine.py", *TOP)
    order(patched, "widen", "more-steps", "top", "twins", "third")
    done = refresh(patched)
    assert "third" in done["loose"] and "twins" in done["moved"]


def test_a_real_conflict_is_named_and_nothing_is_written(patched: Project) -> None:
    patched.patch("top", "srt/engine.py", *TOP)
    patched.patch("tail", "srt/engine.py", *TAIL)
    rival = patches(patched)["tail.patch"].replace(b"+LINE_30 = 31", b"+LINE_30 = 99")
    rival = rival.replace(b"Slug: tail", b"Slug: rival")
    (patched.layout.patches / "rival.patch").write_bytes(rival)
    order(patched, "widen", "more-steps", "rival", "top", "tail")
    before, tree = patches(patched), patched.snapshot()
    done = patched.command("refresh")
    assert done.returncode == 1
    assert "patch tail conflicts" in done.stderr and "patches/tail.patch" in done.stderr
    assert patches(patched) == before and patched.snapshot() == tree


def test_little_context_that_fits_in_several_places_is_a_conflict(patched: Project) -> None:
    """Three lines of context tell the place, one does not: better no answer than a wrong one."""
    rows = "".join(f"# {number}\nsame()\nold()\nsame()\n" for number in range(4))
    patched.patch("rows", "srt/engine.py", "LINE_9 = 9\n", f"LINE_9 = 9\n{rows}")
    patched.patch("name", "srt/engine.py", "# 2\nsame()\nold()", "# two\nsame()\nold()")
    patched.patch("call", "srt/engine.py", "# two\nsame()\nold()", "# two\nsame()\nnew()")
    order(patched, "widen", "more-steps", "rows", "call", "name")
    done = patched.command("refresh")
    assert done.returncode == 1 and "several places" in done.stderr


@pytest.mark.parametrize("command", ["edit", "commit"])
def test_the_tree_and_its_edits_are_not_touched(patched: Project, command: str) -> None:
    patched.patch("top", "srt/engine.py", *TOP)
    patched.patch("tail", "srt/engine.py", *TAIL)
    order(patched, "widen", "more-steps", "tail", "top")
    patched.edit("srt/args.py", "LINE_7", "SEVEN")
    if command == "commit":
        patched.fine("new", "seven")
    tree, head = patched.snapshot(), patched.fine("git", "rev-parse", "HEAD")
    patched.fine("refresh")
    assert patched.snapshot() == tree
    assert patched.fine("git", "rev-parse", "HEAD") == head
    assert patched.command("apply").returncode == 1, "the work in the tree was thrown away"
