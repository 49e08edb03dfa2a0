"""What a person gets wrong is answered in plain words: what, where, and what to do."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.vendoring_project import FILES, HEADER, VERSION, Project, make_wheel
from vendoring.author import new_patch
from vendoring.cli import main
from vendoring.gates import check
from vendoring.gitrepo import GitRepo
from vendoring.report import status


def refused(project: Project, *arguments: str) -> str:
    """What the command says on stderr, run in this process; it has to end with 1, not with what a
    person would see as a traceback.
    """
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        assert main(list(arguments), project.layout) == 1, said.getvalue()
    assert said.getvalue().count("error: ") == 1
    return said.getvalue()


def patch_file(project: Project) -> Path:
    return project.layout.patches / "widen.patch"


@pytest.mark.parametrize("arguments", [("status",), ("status", "--json"), ("check",)])
def test_a_reader_that_has_enough_is_no_fault(patched: Project, arguments: tuple[str, ...]) -> None:
    """As `status | head -1`: the reading end is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "vendoring", *arguments],
            cwd=patched.layout.python,
            env=patched.environment(),
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_behind_stdout_is_told(patched: Project) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "vendoring", "status"],
            cwd=patched.layout.python,
            env=patched.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1
    assert "error: the operating system refused" in done.stderr and "stdout" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("new", "good", "--header", "/nowhere/header.txt"),
        ("new", "good", "--header", "/"),
        ("wheel", "/dev/null"),
        ("overlay", "/dev/null"),
        ("export", "--upstream", "/dev/null"),
        ("mutation", "widen", "--python", "/nowhere/python"),
        ("mails", "--python", "/nowhere/python"),
        ("bump", VERSION, "--wheel", "/nowhere/some.whl"),
        ("bump", VERSION, "--wheel", "/dev/null"),
    ],
)
def test_a_path_that_cannot_serve_is_named(patched: Project, arguments: tuple[str, ...]) -> None:
    if arguments[0] == "new":
        patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    said = refused(patched, *arguments)
    assert arguments[-1] in said and "what to do: " in said


@pytest.mark.parametrize("command", ["apply", "check"])
def test_a_host_without_git(
    patched: Project, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    patched.layout.stamp.unlink()
    (patched.root / ".git").mkdir()
    assert "git is not installed" in refused(patched, command)
    assert "git is not installed" in refused(patched, "git", "log")


def test_a_checkout_that_cannot_be_written_or_read(patched: Project) -> None:
    """Folders where files have to be stand for rights that are missing: root has all rights."""
    patched.layout.lock.unlink()
    patched.layout.lock.mkdir()
    patched.layout.stamp.unlink()
    for command in (("apply",), ("export",), ("drop", "widen", "--why", "x")):
        said = refused(patched, *command)
        assert str(patched.layout.lock) in said and "what to do: " in said
    (patched.root / ".git").mkdir()  # no repository, or one of somebody else
    said = refused(patched, "check")
    assert "git cannot list the files" in said and f"file: {patched.root}\n" in said


@pytest.mark.parametrize("name", ["series", "upstream.toml", "mutation.json", "retired.toml"])
def test_a_file_that_is_no_text(patched: Project, name: str) -> None:
    path = patched.layout.patches / name
    path.write_bytes(b"\xff\xfe\0" + (path.read_bytes() if path.is_file() else b""))
    patched.layout.stamp.unlink()
    command = {"mutation.json": ("status",), "retired.toml": ("drop", "widen", "--why", "x")}
    assert name in refused(patched, *command.get(name, ("apply",)))


def test_a_stamp_that_is_no_text_means_that_the_tree_is_made_anew(patched: Project) -> None:
    patched.layout.stamp.write_bytes(b"\xff{")
    assert status(patched.layout)["tree"]["condition"] == "half-made"
    assert main(["apply"], patched.layout) == 0
    assert json.loads(patched.layout.stamp.read_text())["version"] == VERSION


def test_windows_line_ends_are_called_by_their_name(patched: Project) -> None:
    path = patch_file(patched)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    said = refused(patched, "status")
    assert "CRLF" in said and "patches/widen.patch" in said and "core.autocrlf" in said


def test_a_difference_in_space_is_shown(patched: Project) -> None:
    path = patch_file(patched)
    path.write_text(path.read_text().replace("\n     return tokens", "\n \treturn tokens"))
    patched.layout.stamp.unlink()
    said = refused(patched, "apply")
    assert r"wanted '\treturn tokens" in said and "found '    return tokens" in said


def test_a_patch_of_a_file_that_upstream_lacks(patched: Project) -> None:
    path = patch_file(patched)
    path.write_text(path.read_text().replace("srt/engine.py", "srt/motor.py"))
    patched.layout.stamp.unlink()
    said = refused(patched, "apply")
    assert "patches/widen.patch" in said and "srt/motor.py" in said and "does not exist" in said
    gates = {gate.name: gate for gate in check(patched.layout)}
    assert "srt/motor.py" in str(gates["patches apply with no fuzz and no offset"].faults)
    assert not gates["export would change nothing"].ran


def test_a_patch_that_was_cut_off(patched: Project) -> None:
    path = patch_file(patched)
    path.write_text(path.read_text()[:-60])
    said = refused(patched, "apply")
    assert "patches/widen.patch" in said and "cannot be read" in said and "value: " in said


@pytest.mark.parametrize(
    "arguments",
    [("drop", "wide", "--why", "x"), ("amend", "wide", "--subject", "x"), ("mutation", "wide")],
)
def test_a_name_of_no_patch(patched: Project, arguments: tuple[str, ...]) -> None:
    said = refused(patched, *arguments)
    assert "value: wide\n" in said and "did you mean widen?" in said


def test_a_name_that_no_patch_can_have(patched: Project) -> None:
    patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    assert "value: Wide Default" in refused(patched, "new", "Wide Default")
    assert "lower case words" in refused(patched, "new", "../wide")
    assert status(patched.layout)["tree"]["edits"] == ["srt/engine.py"]


@pytest.mark.parametrize("stray", [False, True])
def test_a_commit_that_names_no_patch(patched: Project, stray: bool) -> None:
    """Without the trailer, or with it in a paragraph that begins with something else."""
    patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    message = (
        f"Widen\n\n# why\n{HEADER.format(slug='x').split(chr(10) * 2)[2]}" if stray else "Wide"
    )
    patched.fine("git", "commit", "-q", "-a", "-m", message)
    said = refused(patched, "export")
    assert "Slug: name-of-the-patch" in said and "git commit --amend" in said
    assert ("begins '# why'; a paragraph of fields" in said) == stray


def test_what_a_patch_cannot_carry_is_refused(patched: Project) -> None:
    def link() -> None:
        (patched.tree / "srt" / "link.py").symlink_to("engine.py")

    def spaces() -> None:
        (patched.tree / "srt" / "a b.py").touch()

    def umlaut() -> None:
        (patched.tree / "srt" / "ä.py").touch()

    def mode() -> None:
        (patched.tree / "srt" / "engine.py").chmod(0o755)

    def binary() -> None:
        (patched.tree / "srt" / "data.bin").write_bytes(b"\0\2")

    made = GitRepo(patched.layout.git_dir, patched.tree)
    for number, (make, words) in enumerate(
        (
            (link, "ordinary text files"),
            (spaces, "without spaces"),
            (umlaut, "ASCII"),
            (mode, "ordinary text files"),
            (binary, "ordinary text files"),
        )
    ):
        make()
        new_patch(patched.layout, f"odd-{number}", None, [])
        said = refused(patched, "export")
        assert f"patches/odd-{number}.patch" in said and words in said
        made.run("reset", "--quiet", "--hard", "HEAD^")


def test_a_wheel_of_another_release_is_not_what_was_asked_for(
    patched: Project, tmp_path: Path
) -> None:
    said = refused(patched, "bump", "9.9.2", "--wheel", str(patched.wheel))
    assert f"sglang {VERSION}, asked for sglang 9.9.2" in said
    newer = make_wheel(tmp_path / "next", FILES, "9.9.2")
    assert main(["bump", "9.9.2", "--wheel", str(newer)], patched.layout) == 0
    newer.write_bytes(newer.read_bytes()[:-40])
    said = refused(patched, "bump", "9.9.2", "--wheel", str(newer))
    assert "cannot be read" in said and str(newer) in said


def test_an_old_python_is_told(patched: Project) -> None:
    """What pip meets as well, since the build backend is in the same package."""
    code = "import sys; sys.version_info = (3, 10, 1, 'final', 0); import vendoring.backend"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=patched.layout.python,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "needs Python 3.11 or newer" in done.stderr


def test_results_that_are_missing_are_a_warning(
    patched: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check` passes: a person runs `make mutation` when it suits."""
    assert main(["check"], patched.layout) == 0
    said = capsys.readouterr().err
    assert "warning: patches/mutation.md" in said and "`make mutation`" in said
    assert "widen, more-steps" in said and "patches/mails.md" in said
