"""A small stand-in for the project: a made-up upstream wheel, a checkout in a temporary folder.

Nothing here touches the real checkout's `python/sglang` or `python/.vendor`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import vendoring
from vendoring.author import new_patch, people_author
from vendoring.export import export
from vendoring.header import parse_message
from vendoring.interpreter import running_tag
from vendoring.layout import Layout

TAG = running_tag()
PLATFORM = "manylinux_2_34_x86_64"
VERSION = "9.9.1"
NUMBERS = "".join(f"LINE_{number} = {number}\n" for number in range(40))
FILES = {
    "__init__.py": '"""A stand-in for upstream."""\n',
    "srt/__init__.py": "",
    "srt/engine.py": "def decode(tokens, width=1):\n    return tokens[:width]\n\n\n" + NUMBERS,
    "srt/args.py": 'class Args:\n    """Flags."""\n\n    steps: int = 3\n\n\n' + NUMBERS,
    "srt/data.bin": "\x00\x01",
}
METADATA = """\
Metadata-Version: 2.4
Name: sglang
Version: 9.9.1
License: Some licence
{blank}
        with an empty line in it
Requires-Python: >=3.11
Requires-Dist: alpha==1.0
Requires-Dist: cuda_thing[cu13]>=2; sys_platform == "linux"
Requires-Dist: sglang-kernel==0.4.10
Provides-Extra: more
Requires-Dist: beta; extra == "more"
Dynamic: license-file

# A description

Requires-Dist: not-a-requirement
""".replace("{blank}", " " * 8)
HEADER = """\
Widen the default

Because one token is few.

Slug: {slug}
Category: fix
Origin: own
Bug: none
Forwarded: no
Applied-Upstream: no
Last-Update: 2025-11-29
Test: test/unit/test_widen.py::test_width
Retire-When: already-in
"""


def wheel_name(version: str = VERSION, tag: str = TAG) -> str:
    return f"sglang-{version}-{tag}-{tag}-{PLATFORM}.whl"


def make_wheel(
    folder: Path,
    files: dict[str, str] = FILES,
    version: str = VERSION,
    tag: str = TAG,
    metadata: str = METADATA,
) -> Path:
    """Writes a wheel whose package `sglang` holds `files`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / wheel_name(version, tag)
    info = f"sglang-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"sglang/{name}", text)
        of_version = metadata.replace(f"\nVersion: {VERSION}\n", f"\nVersion: {version}\n")
        archive.writestr(f"{info}/METADATA", of_version)
        scripts = "[console_scripts]\nsglang = sglang.cli.main:main\n"
        archive.writestr(f"{info}/entry_points.txt", scripts)
        archive.writestr(f"{info}/licenses/LICENSE", "Some licence\n")
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Project:
    """A checkout in a temporary folder, with the wheel it is pinned to."""

    root: Path
    wheel: Path

    @property
    def layout(self) -> Layout:
        return Layout(self.root)

    @property
    def tree(self) -> Path:
        return self.layout.tree

    def pin(self, sha: str = "", tag: str = TAG, machine: str = "x86_64", spec: int = 1) -> None:
        """Writes `patches/upstream.toml`; a tag that does not exist is pinned too."""
        text = f"""\
[upstream]
name = "sglang"
version = "{VERSION}"
spec = {spec}
system = "Linux"
machine = "{machine}"

[wheels.{tag}]
file = "{wheel_name(tag=tag)}"
sha256 = "{sha or sha256(self.wheel)}"

[wheels.cp399]
file = "{wheel_name(tag="cp399")}"
sha256 = "{sha256(self.wheel)}"

[devices.cuda]

[devices.cpu]
leave-out = ["cuda-thing"]

[devices.cpu.kernel]
name = "sglang-kernel"
version = "0.4.10+cpu"
folder = "sgl-kernel"
"""
        self.layout.pin.write_text(text, encoding="utf-8")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `python -m vendoring` of the copy in a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "vendoring", *arguments],
            cwd=self.layout.python,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        """What it starts with; pytest in it loads no plugins, which takes longer than its tests."""
        added = {"PYTHONPATH": str(self.layout.python), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return os.environ | added

    def fine(self, *arguments: str) -> str:
        """The same, and it must succeed; gives what it prints on stdout."""
        done = self.command(*arguments)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def edit(self, name: str, old: str, new: str) -> None:
        """Replaces a text once in a file of the vendored tree."""
        path = self.tree / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def patch(self, slug: str, name: str, old: str, new: str, header: str = HEADER) -> None:
        """Makes an exported patch out of one edit, in this process: it is what a test starts
        from. `new` and `export` have tests that run them as commands. Leaves `header.txt`.
        """
        self.edit(name, old, new)
        text, author = header.format(slug=slug), people_author(self.layout)
        (self.root / "header.txt").write_text(text, encoding="utf-8")
        new_patch(self.layout, slug, parse_message(text, author), [])
        export(self.layout)

    def snapshot(self) -> dict[str, bytes]:
        """Every file of the vendored tree without stamp and bytecode."""
        return {
            str(path.relative_to(self.tree)): path.read_bytes()
            for path in self.tree.rglob("*")
            if path.is_file() and path != self.layout.stamp and "__pycache__" not in path.parts
        }


def make_project(folder: Path) -> Project:
    """A checkout with no patch, the own package, and a test that a patch can name."""
    root = folder / "checkout"
    project = Project(root, make_wheel(folder / "wheels"))
    layout = project.layout
    shutil.copytree(
        Path(vendoring.__file__).parent,
        layout.python / "vendoring",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    layout.own.mkdir(parents=True)
    (layout.own / "__init__.py").write_text('"""Ours."""\n')
    (layout.python / "sglang_spec").mkdir()
    (layout.python / "sglang_spec" / "__init__.py").touch()
    (layout.python / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'vendoring.backend'\nbackend-path = ['.']\n"
        "[tool.sglang-spec]\ndependencies = ['gamma>=3']\n"
    )
    (root / "sgl-kernel").mkdir()
    (root / "sgl-kernel" / "pyproject.toml").touch()
    layout.patches.mkdir()
    layout.series.write_text("# one file name a line\n")
    tests = root / "test" / "unit"
    tests.mkdir(parents=True)
    (tests / "test_widen.py").write_text(
        "def test_width():\n"
        "    from sglang.srt.engine import decode\n\n"
        "    assert decode([1, 2, 3]) == [1, 2]\n"
    )
    project.pin()
    return project


def unpacked(project: Project, folder: Path) -> Path:
    """The project's pack as it lies on a GPU machine."""
    folder.mkdir(parents=True, exist_ok=True)
    project.fine("pack", str(folder / "pack.tar.gz"), "--python-tag", TAG)
    with tarfile.open(folder / "pack.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "sglang-spec"
