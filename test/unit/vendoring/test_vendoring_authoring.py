"""Authoring patches: new, amend, export, drop, and that the way back gives the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from kit.vendoring_project import HEADER, Project, sha256
from vendoring.errors import VendoringError
from vendoring.header import Header, parse_mail_head, parse_message, template
from vendoring.retire import RetireWhen, is_due, parse_retire
from vendoring.series import series_names, series_text
from vendoring.stamp import read_stamp


def patches(project: Project) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in project.layout.patches.iterdir()}


def header_of(path: Path) -> Header:
    return parse_mail_head(path.read_text().partition("\n---\n")[0], path.name)


def test_round_trip_is_byte_equal(patched: Project) -> None:
    """Edited in the tree, committed with git, exported, applied to a clean tree: the same bytes."""
    patched.edit("srt/engine.py", "LINE_30 = 30\n", "LINE_30 = 31\nODD = '\u2028\f'\n")
    (patched.tree / "srt" / "fresh.py").write_bytes(b"x = 1\r\ny = 2")  # no newline at the end
    (patched.tree / "srt" / "empty.py").touch()
    last = patched.tree / "srt" / "args.py"
    last.write_bytes(last.read_bytes().removesuffix(b"LINE_39 = 39\n").removesuffix(b"\n"))
    message = patched.root / "message.txt"
    message.write_text(HEADER.format(slug="third"))
    patched.fine("git", "add", "-A")
    patched.fine("git", "commit", "-q", "-F", str(message))
    patched.fine("export")
    last.write_bytes(last.read_bytes() + b" + 0\n")  # a last line without newline is changed
    (patched.tree / "srt" / "empty.py").unlink()
    message.write_text(HEADER.format(slug="fourth"))
    patched.fine("git", "add", "-A")
    patched.fine("git", "commit", "-q", "-F", str(message))
    assert "wrote fourth.patch" in patched.fine("export")
    tree, exported = patched.snapshot(), patches(patched)
    patched.layout.stamp.unlink()
    patched.fine("apply")
    assert patched.snapshot() == tree
    assert patched.fine("export") == "patches/ holds this already\n"
    assert patches(patched) == exported


def test_export_does_not_depend_on_peoples_git_settings(patched: Project) -> None:
    before = patches(patched)
    with Path(os.environ["GIT_CONFIG_GLOBAL"]).open("a") as file:
        file.write(
            "[diff]\n noprefix = true\n mnemonicPrefix = true\n context = 9\n"
            "[diff]\n algorithm = patience\n"
            "[core]\n abbrev = 5\n[color]\n ui = always\n[format]\n signature = me\n"
        )
    for path in patched.layout.patches.glob("*.patch"):
        path.unlink()
    patched.fine("export")
    assert patches(patched) == before


def test_exported_patch_is_deterministic_in_form(patched: Project) -> None:
    text = (patched.layout.patches / "widen.patch").read_text()
    assert text.startswith(f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: Ada Example <ada@")
    assert "\nDate: Sat, 29 Nov 2025 00:00:00 +0000\nSubject: Widen the default\n" in text
    index = next(line for line in text.split("\n") if line.startswith("index "))
    assert len(index.split()[1]) == 40 + 2 + 40
    assert not text.rstrip("\n").endswith("-- ")


def test_export_brings_the_stamp_up_to_date(patched: Project) -> None:
    patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    patched.fine("new", "third", "--header", str(patched.root / "header.txt"))
    blob = patched.tree / "srt" / "__init__.py"
    blob.write_text("NOT_EXPORTED = 1\n")
    patched.fine("export")
    stamp = read_stamp(patched.layout.stamp)
    assert stamp is not None and len(stamp["patches"]) == 3
    differing = [
        name for name in stamp["files"] if sha256(patched.tree / name) != stamp["files"][name]
    ]
    assert differing == ["srt/__init__.py"]
    blob.write_text("")
    assert "tree: current" in patched.fine("status")


def test_new_takes_only_the_named_files(patched: Project) -> None:
    patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    patched.edit("srt/args.py", "LINE_7", "SEVEN")
    patched.fine("new", "third", "srt/args.py")
    assert patched.fine("git", "status", "--porcelain") == " M srt/engine.py\n"


def test_new_without_edits_and_with_a_taken_name(patched: Project) -> None:
    assert "no edits" in patched.command("new", "third").stderr
    patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    assert "exists" in patched.command("new", "widen").stderr


def test_header_from_options(patched: Project) -> None:
    patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    options = [
        "--subject",
        "Rename",
        "--description",
        "Why.\n\n# not a comment",
        "--test",
        "a.py::b",
    ]
    options += ["--test", "a.py::c", "--category", "site", "--retire-when", "never ours"]
    patched.fine("new", "third", *options)
    patched.fine("export")
    text = (patched.layout.patches / "third.patch").read_text()
    assert "\nTest: a.py::b\nTest: a.py::c\n" in text
    assert "\n\nWhy.\n\n# not a comment\n\nSlug: third\n" in text


def test_amend_folds_edits_into_an_earlier_patch(patched: Project) -> None:
    patched.edit("srt/engine.py", "width=2", "width=3")
    patched.fine("amend", "widen", "--subject", "Widen more")
    patched.fine("export")
    text = (patched.layout.patches / "widen.patch").read_text()
    assert "+def decode(tokens, width=3):" in text and "Subject: Widen more\n" in text
    assert series_names(patched.layout.series.read_text()) == ["widen", "more-steps"]
    assert "tree: current" in patched.fine("status")


def test_amend_takes_a_field_out_and_leaves_the_author(patched: Project) -> None:
    by = ("--author", "Grace Example <grace@example.org>", "--depends", "more-steps")
    patched.fine("amend", "widen", *by)
    patched.fine("amend", "widen", "--depends", "", "--category", "fix")
    patched.fine("export")
    text = (patched.layout.patches / "widen.patch").read_text()
    assert "Depends" not in text and "\nCategory: fix\n" in text
    assert "\nFrom: Grace Example <grace@example.org>\n" in text


def test_a_look_at_upstream_is_no_update_of_the_patch(patched: Project) -> None:
    path = patched.layout.patches / "widen.patch"
    before = header_of(path).get("Last-Update")
    assert "| no |" in patched.layout.table.read_text()
    patched.fine("amend", "widen", "--upstream-checked", "2031-02-03 in 9.9.1")
    patched.fine("export")
    after = header_of(path)
    assert after.get("Last-Update") == before == "2025-11-29"
    assert after.get("Upstream-Checked") == "2031-02-03 in 9.9.1"
    assert "| 2031-02-03 in 9.9.1 |" in patched.layout.table.read_text()
    patched.fine("amend", "widen", "--upstream-checked", "2031-02-04 in 9.9.2", "--origin", "own")
    patched.fine("export")
    assert header_of(path).get("Last-Update") > before


def test_amend_that_cannot_be_folded_changes_nothing(patched: Project) -> None:
    patched.patch("widen-again", "srt/engine.py", "width=2", "width=5")
    head = patched.fine("git", "rev-parse", "HEAD")
    patched.edit("srt/engine.py", "width=5", "width=6")
    done = patched.command("amend", "widen")
    assert done.returncode == 1 and "a later patch changes the same lines" in done.stderr
    assert patched.fine("git", "rev-parse", "HEAD") == head
    assert "width=6" in (patched.tree / "srt" / "engine.py").read_text()


def test_drop_rewrites_the_rest_and_leaves_a_line(patched: Project) -> None:
    patched.patch("tail", "srt/engine.py", "LINE_30 = 30\n", "LINE_30 = 30\nEXTRA = 1\n")
    patched.fine("drop", "widen", "--why", 'upstream "fixed" it', "--upstream", "abc123")
    assert series_names(patched.layout.series.read_text()) == ["more-steps", "tail"]
    assert not (patched.layout.patches / "widen.patch").exists()
    ledger = patched.layout.retired.read_text()
    assert 'slug = "widen"' in ledger and 'why = "upstream \\"fixed\\" it"' in ledger
    patched.fine("apply")
    patched.fine("check")
    assert "width=1" in (patched.tree / "srt" / "engine.py").read_text()


def test_drop_of_a_patch_that_others_need(patched: Project) -> None:
    header = HEADER.replace("Retire-When", "Depends: widen\nRetire-When")
    patched.patch("tail", "srt/engine.py", "LINE_30 = 30", "LINE_30 = 31", header)
    done = patched.command("drop", "widen", "--why", "x")
    assert done.returncode == 1 and "tail" in done.stderr


def test_status_tells_states_and_sizes(patched: Project) -> None:
    patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    text = patched.fine("status")
    assert "edited: srt/engine.py" in text
    widen = next(line for line in text.split("\n") if line.strip().startswith("widen"))
    assert widen.split() == ["widen", "fix", "+1", "-1", "modified"]
    assert "added lines: median 1 (at most 20), largest 1 (at most 60) widen" in text
    assert "mutants: 2 not run\nmails: 2 not run" in text


def test_wrong_usage_is_status_two(project: Project) -> None:
    assert project.command("bogus").returncode == 2
    assert project.command("new").returncode == 2


def test_errors_as_json(project: Project) -> None:
    done = project.command("export", "--json")
    assert done.returncode == 1
    assert '"remedy": "python -m vendoring apply"' in done.stdout


def test_table_lists_every_patch(patched: Project) -> None:
    text = patched.layout.table.read_text()
    assert "| [widen](widen.patch) | Widen the default | fix | 1 / 1 | not sent |" in text


def test_series_comments_stay_with_their_group() -> None:
    old = "# head\n\n# engine\na.patch\nb.patch\n# flags\nc.patch\n"
    assert series_text(old, ["a", "b", "c"]) == old
    assert series_text(old, ["b", "c", "d"]) == (
        "# head\n\n# engine\nb.patch\n# flags\nc.patch\nd.patch\n"
    )
    assert series_text("# head\n", ["a"]) == "# head\na.patch\n"


@pytest.mark.parametrize(
    "line",
    [
        "one",
        "one.diff",
        " one.patch",
        "one.patch ",
        "one.patch -p1",
        "one.patch  # why",
        "sub/one.patch",
        "One.patch",
        ".patch",
        "<<<<<<< HEAD",
    ],
)
def test_series_takes_file_names_only(line: str) -> None:
    with pytest.raises(VendoringError) as caught:
        series_names(f"# head\n\ntwo.patch\n{line}\n")
    assert (caught.value.file, caught.value.key, caught.value.value) == (
        "patches/series",
        "line 4",
        line,
    )


def test_series_of_bare_names_says_what_to_type(patched: Project) -> None:
    """The form of this file before it became quilt's; what the message says mends it."""
    series = patched.layout.series
    quilt = series.read_text()
    series.write_text(quilt.replace(".patch", ""))
    for command in ("status", "apply", "export", "refresh"):
        done = patched.command(command, "--json")
        error = json.loads(done.stdout)["error"]
        assert done.returncode == 1 and error["key"] == "line 2" and error["value"] == "widen"
    check = patched.command("check").stdout
    assert "series and files agree" in check and "sed -i -E" in check
    typed = error["remedy"].split(": ", 1)[1].split(";")[0]
    subprocess.run(typed, shell=True, check=True, cwd=patched.root)
    assert series.read_text() == quilt
    patched.fine("check")


def test_header_text_comes_back_as_it_was() -> None:
    text = HEADER.format(slug="widen").replace("Bug: none", "Bug: one,\n second line\nBug: two")
    header = parse_message(text, "Ada <ada@example.org>")
    assert header.message() == text
    assert header.all("Bug") == ("one,\nsecond line", "two")


def test_sections_of_a_description() -> None:
    body = "First.\n\nMotivation:\nWhy.\n\nHow to reproduce:\nRun it.\n"
    header = parse_message(f"S\n\n{body}\nSlug: a\n", "Ada <ada@example.org>")
    assert header.sections() == {"": "First.", "Motivation": "Why.", "How to reproduce": "Run it."}


def test_template_names_every_field() -> None:
    import datetime

    header = template("a-b", "Ada <ada@example.org>", datetime.date(2025, 1, 2))
    assert header.get("Last-Update") == "2025-01-02"


@pytest.mark.parametrize(
    ("value", "expected", "due"),
    [
        ("already-in", RetireWhen("already-in"), True),
        ("version >= 0.5.24", RetireWhen("version", text="0.5.24"), True),
        ("version >= 0.6", RetireWhen("version", text="0.6"), False),
        ("contains a.py def f(", RetireWhen("contains", "a.py", "def f("), True),
        ("lacks a.py def f(", RetireWhen("lacks", "a.py", "def f("), False),
        ("lacks b.py x", RetireWhen("lacks", "b.py", "x"), True),
        ("never ours alone", RetireWhen("never", text="ours alone"), False),
    ],
)
def test_retire_conditions(value: str, expected: RetireWhen, due: bool) -> None:
    condition = parse_retire(value)
    assert condition == expected
    files = {"a.py": "def f(x): ..."}
    assert is_due(condition, "0.5.24.post1", files.get, already_in=True) is due


@pytest.mark.parametrize("value", ["", "never", "version > 3", "contains a.py", "when it is fixed"])
def test_retire_conditions_that_no_tool_can_ask(value: str) -> None:
    assert parse_retire(value) is None
