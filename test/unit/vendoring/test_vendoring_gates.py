"""Each gate of `check` passes on a good stack and fails on a planted fault."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.vendoring_project import HEADER, METADATA, Project, make_wheel, sha256
from vendoring.gates import check
from vendoring.mail_record import Trial
from vendoring.mutation_record import Mutant, write_record
from vendoring.series import read_series


def failing(project: Project) -> dict[str, str]:
    """Names of the gates that fail, with their faults in one text."""
    return {gate.name: "\n".join(gate.faults) for gate in check(project.layout) if not gate.passed}


def rewrite(project: Project, slug: str, change: Callable[[str], str]) -> None:
    path = project.layout.patches / f"{slug}.patch"
    old = path.read_text()
    path.write_text(change(old))
    assert path.read_text() != old


def test_good_stack_passes(patched: Project) -> None:
    assert failing(patched) == {}
    done = patched.command("check", "--json")
    assert done.returncode == 0
    assert all(gate["passed"] for gate in json.loads(done.stdout))


def test_finding_gives_exit_status_one(patched: Project) -> None:
    (patched.layout.patches / "stray.patch").touch()
    done = patched.command("check")
    assert done.returncode == 1
    assert "patches/stray.patch exists" in done.stdout


def test_patch_without_entry(patched: Project) -> None:
    (patched.layout.patches / "stray.patch").touch()
    assert "stray" in failing(patched)["series and files agree"]


def test_entry_without_patch(patched: Project) -> None:
    (patched.layout.patches / "widen.patch").unlink()
    found = failing(patched)
    assert "patches/widen.patch does not exist" in found["series and files agree"]


def test_entry_given_twice(patched: Project) -> None:
    with patched.layout.series.open("a") as file:
        file.write("widen.patch\n")
    assert "widen twice" in failing(patched)["series and files agree"]


def test_patch_that_cannot_be_read(patched: Project) -> None:
    rewrite(patched, "widen", lambda text: text.replace("@@ -1,", "@@ -one,"))
    assert "patches/widen.patch" in failing(patched)["patches can be read"]


@pytest.mark.parametrize(
    "key",
    [
        *("Category", "Origin", "Bug", "Forwarded", "Applied-Upstream", "Last-Update", "Test"),
        *("Retire-When", "Slug"),
    ],
)
def test_header_without_a_field(patched: Project, key: str) -> None:
    def change(text: str) -> str:
        kept = [line for line in text.split("\n") if not line.startswith(f"{key}: ")]
        return "\n".join(kept)

    rewrite(patched, "widen", change)
    assert f"{key} is missing" in failing(patched)["headers are complete"]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("Widen the default\n", "TODO\n", "Subject is missing"),
        ("Subject: Widen", "Subject: Subject: Widen", "says what it is twice"),
        ("Because one token is few.\n", "TODO\n", "Description is missing"),
        ("Because one token is few.\n\n", "", "Description is missing"),
        ("From: Ada Example <ada@example.org>", "From: Ada", "Author is not"),
        ("Category: fix", "Category: wish", "Category is none of"),
        ("Slug: widen", "Slug: other", "Slug says other"),
        ("Forwarded: no", "Forwarded: not-needed", "gives no reason"),
        ("Forwarded: no", "Forwarded: perhaps", "Forwarded is neither"),
        ("Last-Update: 2025-11-29", "Last-Update: TODO", "Last-Update still says TODO"),
        ("Origin: own", "Origin: own\nUpstream-Checked: 2025-11-29", "is not `DATE WHERE`"),
        ("Origin: own", "Origin: own\nUpstream-Checked: soon in 1.2", "is not `DATE WHERE`"),
        ("Retire-When: already-in", "Retire-When: some day", "Retire-When is not one of"),
        ("Slug: widen", "Depends: more-steps\nSlug: widen", "not before it in the series"),
    ],
)
def test_header_that_is_not_usable(patched: Project, old: str, new: str, fault: str) -> None:
    rewrite(patched, "widen", lambda text: text.replace(old, new, 1))
    assert fault in failing(patched)["headers are complete"]


def test_unknown_field(patched: Project) -> None:
    rewrite(patched, "widen", lambda text: text.replace("Origin: own", "Orgin: own"))
    assert "unknown field" in failing(patched)["patches can be read"]


def test_field_given_twice(patched: Project) -> None:
    rewrite(patched, "widen", lambda t: t.replace("Origin: own", "Origin: own\nOrigin: a"))
    assert "twice" in failing(patched)["patches can be read"]


def test_offset(patched: Project) -> None:
    rewrite(patched, "widen", lambda text: text.replace("@@ -1,4 +1,4 @@", "@@ -2,4 +2,4 @@"))
    found = failing(patched)["patches apply with no fuzz and no offset"]
    assert "widen: srt/engine.py, hunk 1, line 2: fits -1 lines away" in found


def test_conflict(patched: Project) -> None:
    rewrite(patched, "widen", lambda text: text.replace("tokens[:width]", "tokens[:wide]"))
    found = failing(patched)["patches apply with no fuzz and no offset"]
    assert "widen: srt/engine.py, hunk 1" in found and "wanted" in found


def test_patch_that_applies_twice(patched: Project) -> None:
    # Added at the end of a file, between lines that look the same again afterwards.
    path = patched.tree / "srt" / "__init__.py"
    path.write_text("same\n" * 8)
    patched.fine("new", "rows", "--header", str(patched.root / "header.txt"))
    path.write_text("same\n" * 9)
    patched.fine("new", "again", "--header", str(patched.root / "header.txt"))
    patched.fine("export")
    assert "again applies a second time" in failing(patched)["no patch applies twice"]


def test_export_that_would_change_a_patch(patched: Project) -> None:
    rewrite(patched, "widen", lambda text: text.replace("@@ -1,4 +1,4 @@", "@@ -1,4 +1,4 @@ x"))
    assert "patches/widen.patch" in failing(patched)["export would change nothing"]


def test_table_that_is_not_what_the_headers_say(patched: Project) -> None:
    with patched.layout.table.open("a") as file:
        file.write("by hand\n")
    assert failing(patched) == {"export would change nothing": "patches/README.md"}


def test_work_that_is_not_exported(patched: Project) -> None:
    patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    found = failing(patched)["export would change nothing"]
    assert "not exported from the tree: srt/engine.py" in found


def test_touched_file_that_does_not_compile(patched: Project) -> None:
    patched.patch("broken", "srt/engine.py", "LINE_20 = 20", "LINE_20 = = 20")
    assert failing(patched)["patched files compile"].startswith("srt/engine.py: invalid syntax")


@pytest.mark.parametrize(
    "node", ["test/unit/test_gone.py::test_width", "test/unit/test_widen.py::test_gone", "test"]
)
def test_test_that_does_not_exist(patched: Project, node: str) -> None:
    good = "test/unit/test_widen.py::test_width"
    rewrite(patched, "widen", lambda text: text.replace(good, node))
    assert "widen: test" in failing(patched)["every Test exists"]


def test_patch_that_is_too_long(patched: Project) -> None:
    more = "".join(f"EXTRA_{number} = 0\n" for number in range(61))
    patched.patch("long", "srt/engine.py", "LINE_20 = 20\n", f"LINE_20 = 20\n{more}")
    assert "long adds 61 lines, more than 60" in failing(patched)["patches are small"]


def test_stack_that_is_too_long(patched: Project) -> None:
    for number in (1, 2, 3):
        more = "".join(f"EXTRA_{number}_{line} = 0\n" for line in range(21))
        old = f"LINE_{number}0 = {number}0\n"
        patched.patch(f"long-{number}", "srt/engine.py", old, old + more)
    assert "the median of added lines is 21" in failing(patched)["patches are small"]


def test_trailing_space(patched: Project) -> None:
    patched.patch("spaces", "srt/engine.py", "LINE_20 = 20", "LINE_20 = 21 ")
    assert "spaces: srt/engine.py" in failing(patched)["no trailing space is added"]


def test_patch_of_our_own_package(patched: Project) -> None:
    rewrite(
        patched, "widen", lambda text: text.replace("srt/engine.py", "srt/spec_hardening/engine.py")
    )
    found = failing(patched)["only upstream files are patched"]
    assert "widen changes srt/spec_hardening/engine.py" in found


def test_upstream_file_in_the_projects_git(patched: Project) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(patched.root), *arguments], check=True)

    git("init", "-q")
    git("add", "python/sglang/srt/spec_hardening")
    assert failing(patched) == {}
    git("add", "python/sglang/srt/engine.py")
    found = failing(patched)["only upstream files are patched"]
    assert "python/sglang/srt/engine.py is committed" in found


def test_requirement_list_that_upstream_outgrew(
    patched: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [line for line in METADATA.split("\n") if "cuda_thing" not in line]
    wheel = make_wheel(tmp_path / "newer", metadata="\n".join(lines))
    monkeypatch.setenv("SGLANG_UPSTREAM_WHEEL", str(wheel))
    patched.pin(sha=sha256(wheel))
    assert "cuda-thing" in failing(patched)["requirement lists are not stale"]


def test_wheel_of_another_interpreter_serves(
    patched: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vendoring import interpreter

    monkeypatch.setattr(interpreter, "running_tag", lambda: "cp310")
    assert failing(patched) == {}
    monkeypatch.delenv("SGLANG_UPSTREAM_WHEEL")  # now out of the cache
    assert failing(patched) == {}


def test_template_header_is_refused(patched: Project) -> None:
    patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    patched.fine("new", "unfinished")
    patched.fine("export")
    assert "unfinished: Test still says TODO" in failing(patched)["headers are complete"]


def test_header_example_is_itself_complete() -> None:
    from vendoring.header import parse_message
    from vendoring.header_faults import header_faults

    header = parse_message(HEADER.format(slug="widen"), "Ada Example <ada@example.org>")
    assert header_faults(header) == []


@pytest.mark.parametrize(
    ("verdict", "with_patch", "fault"),
    [
        ("killed", "passed", ""),
        ("survived", "passed", "widen is survived"),
        ("unproven", "failed", "widen is unproven"),
        ("unproven", "skipped", ""),
    ],
)
def test_a_patch_whose_test_does_not_need_it(
    patched: Project, verdict: str, with_patch: str, fault: str
) -> None:
    widen = read_series(patched.layout)[0]
    row = Mutant.of(widen, ("widen",), with_patch, "failed", verdict, "")
    write_record([row], read_series(patched.layout), patched.layout.patches)
    assert fault in failing(patched).get("kept results are good", "")
    assert bool(fault) == bool(failing(patched))


def test_a_mail_whose_test_does_not_need_it(patched: Project) -> None:
    row = {field.name: "" for field in dataclasses.fields(Trial)}
    row |= {"slug": "widen", "verdict": "survived"}
    (patched.layout.patches / "mails.json").write_text(json.dumps({"mails": [row]}))
    assert failing(patched) == {"kept results are good": "patches/mails.md: widen is survived"}


def test_series_that_export_would_write_differently(patched: Project) -> None:
    text = patched.layout.series.read_text()
    patched.layout.series.write_text(text + "\n\n")
    assert failing(patched) == {"export would change nothing": "patches/series"}
