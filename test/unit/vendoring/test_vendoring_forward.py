"""Looking ahead: `bump`, mails for upstream, and the run that leaves each patch out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from kit.vendoring_project import FILES, HEADER, Project, make_wheel
from vendoring.mutation import contents, dependents
from vendoring.pin import read_pin
from vendoring.retire import is_due, parse_retire
from vendoring.series import decode, read_series
from vendoring.unpack import read_member
from vendoring.uses import uses_in

OWN = """\
from sglang.srt import args
from sglang.srt.args import Args
from sglang.srt.engine import decode
import sglang.srt.engine as engine
from . import helper

STEPS = args.LINE_3
WIDTH = Args.steps


def patched_width():
    return engine.LINE_4
"""


def bump(project: Project, files: dict[str, str], version: str = "9.9.2") -> dict[str, Any]:
    wheel = make_wheel(project.root.parent / "next", files, version)
    done = project.command("bump", version, "--wheel", str(wheel), "--json")
    result: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if result["fine"] else 1)
    return result


def fates(result: dict[str, Any]) -> dict[str, str]:
    return {patch["slug"]: patch["fate"] for patch in result["patches"]}


def test_bump_to_the_same_files_is_fine_and_changes_nothing(patched: Project) -> None:
    before = patched.snapshot()
    result = bump(patched, FILES)
    assert result["fine"] and fates(result) == {"widen": "clean", "more-steps": "clean"}
    assert patched.snapshot() == before


def test_bump_tells_each_fate(patched: Project) -> None:
    patched.patch("tail", "srt/engine.py", "LINE_30 = 30", "LINE_30 = 31")
    patched.patch("root", "__init__.py", "stand-in", "stand-in, patched")
    files = FILES | {
        "srt/engine.py": "# one line more\n"
        + FILES["srt/engine.py"].replace("LINE_30 = 30", "OTHER = 30"),
        "srt/args.py": FILES["srt/args.py"].replace("steps: int = 3", "steps: int = 4"),
    }
    del files["__init__.py"]
    result = bump(patched, files)
    assert fates(result) == {
        "widen": "offset",
        "more-steps": "already-in",
        "tail": "conflict",
        "root": "conflict",
    }
    details = {patch["slug"]: patch["detail"] for patch in result["patches"]}
    assert "fits +1 lines away" in details["widen"]
    assert "srt/engine.py, hunk 1" in details["tail"]
    assert "does not exist" in details["root"]
    assert {p["slug"] for p in result["patches"] if p["retire"]} == {"more-steps"}


def test_bump_tells_what_became_of_the_symbols_we_use(patched: Project) -> None:
    (patched.layout.own / "module.py").write_text(OWN)
    (patched.layout.own / "helper.py").write_text("X = 1\n")
    files = FILES | {
        "srt/engine.py": FILES["srt/engine.py"].replace("width=1)", "width, depth)"),
        "srt/args.py": FILES["srt/args.py"].replace("LINE_3 =", "ROW_3 ="),
    }
    symbols = {entry["symbol"]: entry for entry in bump(patched, files)["symbols"]}
    assert {name: entry["fate"] for name, entry in symbols.items()} == {
        "sglang.srt.args.Args.steps": "present",
        "sglang.srt.args.LINE_3": "gone",
        "sglang.srt.engine.LINE_4": "present",
        "sglang.srt.engine.decode": "changed",
    }
    changed = symbols["sglang.srt.engine.decode"]
    assert (changed["before"], changed["after"]) == ("(tokens, width=1)", "(tokens, width, depth)")
    assert changed["files"] == ["python/sglang/srt/spec_hardening/module.py"]


def test_symbols_are_followed_through_reexports_and_base_classes(tmp_path: Path) -> None:
    from vendoring.symbols import WheelSymbols

    files = {
        "a/__init__.py": "from .b import f as g\nfrom sglang.a.b import Child\nimport torch\n",
        "a/b.py": "class Base:\n    def m(self, x): ...\n"
        "class Child(Base):\n    y: int = 1\n"
        "try:\n    def f(q): ...\nexcept ImportError:\n    f = None\n",
    }
    symbols = WheelSymbols(make_wheel(tmp_path, files))
    assert symbols.signature("sglang.a.g") == "(q)"
    assert symbols.signature("sglang.a.Child.m") == "(self, x)"
    assert symbols.signature("sglang.a.Child") == "class y: int = 1"
    assert symbols.signature("sglang.a.Child.gone") is None
    assert symbols.signature("sglang.a.torch.Tensor") == "value"
    assert symbols.signature("sglang.a.b") == "module"
    assert symbols.signature("sglang.gone.x") is None


def test_uses_leave_out_our_own_modules(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(
        "import sglang\nimport sglang.srt.engine\nfrom sglang.srt.spec_hardening import policy\n"
        "policy.decide()\nsglang.srt.engine.decode()\nlocal = 1\n"
    )
    assert [use.symbol for use in uses_in([path], tmp_path)] == ["sglang.srt.engine.decode"]


SECTIONS = """\
Because one token is few.

Modifications:
One default.

Accuracy:
Unchanged.

Speed:
Twice.

How to reproduce:
Run the test.
"""


@pytest.fixture
def sendable(patched: Project) -> Project:
    """Adds a patch that calls an own module, with every section and a test for upstream."""
    (patched.layout.own / "policy.py").write_text("from .limits import MOST\n\n\nWIDTH = MOST\n")
    (patched.layout.own / "limits.py").write_text("MOST = 3\n")
    (patched.layout.own / "other.py").write_text("")
    header = HEADER.replace("Because one token is few.\n", SECTIONS)
    old, new = "LINE_9 = 9\n", "LINE_9 = 9\nfrom sglang.srt.spec_hardening.policy import WIDTH\n"
    patched.patch("policy", "srt/engine.py", old, new, header)
    test = patched.root / "test" / "upstream" / "policy" / "registered" / "test_policy.py"
    test.parent.mkdir(parents=True)
    test.write_text("def test_policy(): ...\n")
    return patched


def clean_checkout(project: Project, folder: Path) -> Path:
    """A git checkout in upstream's layout with the wheel's files, as a maintainer has it."""
    package = folder / "python"
    with zipfile.ZipFile(project.wheel) as archive:
        archive.extractall(package, [n for n in archive.namelist() if n.startswith("sglang/")])
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "base"]):
        subprocess.run(["git", "-C", folder, *arguments], check=True)
    return folder


def git_am(folder: Path, mail: Path) -> None:
    subprocess.run(["git", "-C", folder, "am", "-q", mail], check=True)


def test_mail_stands_by_itself(sendable: Project, tmp_path: Path) -> None:
    mails = tmp_path / "mails"
    done = json.loads(sendable.command("export", "--upstream", str(mails), "--json").stdout)
    about = {mail["slug"]: mail for mail in done}
    assert about["policy"]["lacks"] == []
    assert about["policy"]["files"] == [
        "python/sglang/srt/engine.py",
        "python/sglang/srt/spec_hardening/__init__.py",
        "python/sglang/srt/spec_hardening/limits.py",
        "python/sglang/srt/spec_hardening/policy.py",
        "test/registered/test_policy.py",
    ]
    for name in ("policy", "widen"):
        folder = clean_checkout(sendable, tmp_path / name)
        git_am(folder, mails / f"{name}.patch")
    text = (tmp_path / "policy" / "python" / "sglang" / "srt" / "engine.py").read_text()
    assert "import WIDTH" in text and "width=1" in text
    log = ["git", "-C", tmp_path / "policy", "log", "-1", "--format=%an%n%B"]
    message = subprocess.run(log, capture_output=True, text=True, check=True).stdout
    assert message.startswith("Ada Example\nWiden the default\n\n## Motivation\n\nBecause one")
    assert "## How to reproduce\n\nRun the test." in message


def test_mails_that_lack_sections_are_a_finding(patched: Project, tmp_path: Path) -> None:
    done = patched.command("export", "--upstream", str(tmp_path / "mails"))
    assert done.returncode == 1 and "lacks: Accuracy" in done.stdout


@pytest.mark.parametrize(
    ("forwarded", "reason"),
    [
        ("not-needed only our site has this", "only our site has this"),
        ("no; after it was measured", "not yet: after it was measured"),
    ],
)
def test_patch_that_must_not_be_sent_is_skipped_with_its_reason(
    patched: Project, tmp_path: Path, forwarded: str, reason: str
) -> None:
    header = HEADER.replace("Forwarded: no", f"Forwarded: {forwarded}")
    patched.patch("site", "srt/engine.py", "LINE_9 = 9", "LINE_9 = 8", header)
    text = patched.command("export", "--upstream", str(tmp_path / "mails")).stdout
    assert f"not sent  site: {reason}" in text
    assert not (tmp_path / "mails" / "site.patch").exists()


def test_undeclared_dependency_is_an_error(patched: Project, tmp_path: Path) -> None:
    patched.patch("wider", "srt/engine.py", "width=2", "width=3")
    done = patched.command("export", "--upstream", str(tmp_path / "mails"))
    assert done.returncode == 1 and "Depends: SLUG" in done.stderr


def test_declared_dependency_comes_first(patched: Project, tmp_path: Path) -> None:
    header = HEADER.replace("Retire-When", "Depends: widen\nRetire-When")
    patched.patch("wider", "srt/engine.py", "width=2", "width=3", header)
    mails = tmp_path / "mails"
    patched.command("export", "--upstream", str(mails))
    folder = clean_checkout(patched, tmp_path / "clean")
    git_am(folder, mails / "widen.patch")
    git_am(folder, mails / "wider.patch")
    assert "width=3" in (folder / "python" / "sglang" / "srt" / "engine.py").read_text()


def test_dependency_of_a_dependency_comes_first(patched: Project, tmp_path: Path) -> None:
    for slug, below, old, new in (("wider", "widen", "2", "3"), ("widest", "wider", "3", "4")):
        header = HEADER.replace("Retire-When", f"Depends: {below}\nRetire-When")
        patched.patch(slug, "srt/engine.py", f"width={old}", f"width={new}", header)
    mails = tmp_path / "mails"
    done = patched.command("export", "--upstream", str(mails), "--json")
    about = {mail["slug"]: mail for mail in json.loads(done.stdout)}
    assert about["widest"]["depends"] == ["wider"]
    assert about["widest"]["after"] == ["widen", "wider"]
    folder = clean_checkout(patched, tmp_path / "clean")
    for slug in ("widen", "wider", "widest"):
        git_am(folder, mails / f"{slug}.patch")
    assert "width=4" in (folder / "python" / "sglang" / "srt" / "engine.py").read_text()


def test_stacked_mails_share_their_modules(sendable: Project, tmp_path: Path) -> None:
    old, new = "LINE_9 = 9\n", "LINE_9 = 9\nfrom sglang.srt.spec_hardening.limits import MOST\n"
    sendable.patch("limits", "srt/args.py", old, new)
    mails = tmp_path / "mails"
    command = ("export", "--upstream", str(mails), "--stacked", "--json")
    about = {mail["slug"]: mail for mail in json.loads(sendable.command(*command).stdout)}
    assert about["limits"]["depends"] == ["policy"]
    assert about["limits"]["files"] == ["python/sglang/srt/args.py"]
    folder = clean_checkout(sendable, tmp_path / "clean")
    for name in ("more-steps", "policy", "widen", "limits"):
        git_am(folder, mails / f"{name}.patch")


def test_module_that_needs_our_tools_cannot_be_sent(sendable: Project, tmp_path: Path) -> None:
    (sendable.layout.own / "limits.py").write_text("import sglang_spec\n\nMOST = 3\n")
    done = sendable.command("export", "--upstream", str(tmp_path / "mails"))
    assert done.returncode == 1 and "limits.py" in done.stderr


def real_wheel() -> Path | None:
    """The pinned wheel where it can be had without a network."""
    from vendoring import wheel_cache
    from vendoring.interpreter import any_wheel
    from vendoring.layout import checkout

    pin = read_pin(checkout().pin)
    given = os.environ.get(wheel_cache.WHEEL_VARIABLE)
    path = Path(given) if given else wheel_cache.cached_path(any_wheel(pin))
    return path if path.is_file() else None


# Asked once, before any test changes the environment.
REAL_WHEEL = real_wheel()


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy of the project itself, with no tree."""
    from vendoring.layout import checkout

    source, root = checkout(), tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("patches", "test", "python/vendoring", "python/sglang_spec"):
        shutil.copytree(source.root / name, root / name, ignore=ignored)
    if source.own.is_dir():
        shutil.copytree(source.own, root / "python/sglang/srt/spec_hardening", ignore=ignored)
    shutil.copy(source.python / "pyproject.toml", root / "python")
    monkeypatch.setenv("SGLANG_UPSTREAM_WHEEL", str(REAL_WHEEL))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Project(root, REAL_WHEEL or Path())


@pytest.mark.skipif(REAL_WHEEL is None, reason="the pinned wheel is not cached")
def test_the_real_stack_passes_its_gates(real: Project) -> None:
    """The project's own series applies exactly, in a repository of the files that it touches."""
    done = real.command("check")
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(REAL_WHEEL is None, reason="the pinned wheel is not cached")
def test_no_patch_of_the_real_stack_says_that_the_pinned_release_retires_it() -> None:
    """A text that upstream has anyway would retire a patch on the day it is written."""
    from vendoring.layout import checkout

    assert REAL_WHEEL is not None
    version, wheel = read_pin(checkout().pin).version, REAL_WHEEL

    def read(name: str) -> str | None:
        data = read_member(wheel, name)
        return None if data is None else decode(data)

    for patch in read_series(checkout()):
        condition = parse_retire(patch.header.get("Retire-When"))
        assert condition is not None
        assert not is_due(condition, version, read, already_in=False), patch.slug


@pytest.mark.full
@pytest.mark.skipif(REAL_WHEEL is None, reason="the pinned wheel is not cached")
def test_each_patch_of_the_real_stack_can_be_left_out_with_its_dependents() -> None:
    """Else it has no mutant. Slow: the whole series is applied once for every patch."""
    from vendoring.layout import checkout

    assert REAL_WHEEL is not None
    patches = read_series(checkout())
    for patch in patches:
        contents(read_pin(checkout().pin), REAL_WHEEL, patches, dependents(patch, patches))


@pytest.mark.full
@pytest.mark.skipif(REAL_WHEEL is None, reason="the pinned wheel is not cached")
@pytest.mark.skipif(sys.version_info[:2] not in ((3, 11), (3, 12)), reason="needs a pinned Python")
def test_the_real_stack_on_the_whole_wheel(real: Project) -> None:
    """The tree is made once. Slow, as the wheel has some thousand files; an installation, without
    which no other test runs, does the same.
    """
    real.fine("apply")
    assert json.loads(real.fine("apply", "--json"))["made"] is False
    assert real.command("check").returncode == 0, "with a tree"
