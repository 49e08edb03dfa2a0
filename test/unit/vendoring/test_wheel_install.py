"""The real wheels where there is no network, as docs/install.md says: with all they require."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.pythons import interpreters
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from vendoring.distribution import Distribution, describe
from vendoring.layout import checkout
from vendoring.pin import read_pin
from vendoring.series import patch_set_hash, read_series
from vendoring.wheel_cache import resolve_any

PIN = read_pin(checkout().pin)
CPU_WHEEL = "export SGLANG_TARGET_DEVICE=cpu"
FETCH = "pip wheel -c python/constraints-cpu.txt -w wheels dist/sglang-*cp312*.whl ./sgl-kernel"
INSTALL = ".venv/bin/pip install --no-index -f wheels sglang"
GIB_NEEDED = 16  # 4 for the wheels, 7 for an environment, and some left for others
WITHOUT_NETWORK = ("unshare", "--map-root-user", "--net")

ASKED = """
import importlib.metadata, socket, sys
try:
    socket.create_connection(("198.51.100.1", 80), timeout=5)
    sys.exit("there is a network here")
except OSError:
    pass
import sglang, sgl_kernel, torch
from sglang.srt.server_args import ServerArgs
from sglang.srt.spec_hardening import provenance
found = provenance.read()
assert not found.differs and not found.missing, found
print(sglang.__version__, importlib.metadata.version("sglang"), found.version, found.patch_set)
print(sglang.__file__, sgl_kernel.__file__, sep="\\n")
"""


def about(device: str, monkeypatch: pytest.MonkeyPatch) -> Distribution:
    """What the metadata of the wheel for this device says."""
    monkeypatch.setenv("SGLANG_TARGET_DEVICE", device)
    wheel, file = resolve_any(PIN)
    return describe(checkout(), PIN, wheel, file, from_checkout=False)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_wheel_that_travels_requires_nothing_of_this_host(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No address of a folder or a repository, which another host has not got."""
    found = about(device, monkeypatch)
    parsed = [Requirement(text) for text in found.requirements]
    assert [text for text, one in zip(found.requirements, parsed, strict=True) if one.url] == []
    names = {canonicalize_name(one.name) for one in parsed}
    assert {"torch", "sglang-kernel", "click"} <= names
    assert ("flashinfer-python" in names) == (device == "cuda")


def test_the_constraints_of_the_cpu_environment_fit_what_its_wheel_requires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise fetching by them ends in a conflict, at a release that the pin has moved to."""
    lines = (checkout().python / "constraints-cpu.txt").read_text().splitlines()
    pinned = [Requirement(line) for line in lines if line and not line.startswith("#")]
    versions = {canonicalize_name(one.name): next(iter(one.specifier)).version for one in pinned}
    here = {"extra": ""} | dict(default_environment())
    misfits, fitting = [], 0
    for text in about("cpu", monkeypatch).requirements:
        wanted = Requirement(text)
        version = versions.get(canonicalize_name(wanted.name))
        if (wanted.marker is not None and not wanted.marker.evaluate(here)) or version is None:
            continue
        fitting += 1
        if not wanted.specifier.contains(version, prereleases=True):
            misfits.append(f"{text}, pinned {version}")
    assert misfits == [] and fitting > 30


def test_the_guide_says_what_is_tried_here() -> None:
    guide = (checkout().root / "docs" / "install.md").read_text()
    for command in (CPU_WHEEL, FETCH, INSTALL):
        assert command in guide.splitlines(), command


def run(*command: str | Path, **environment: str) -> str:
    """Standard output of a command that must succeed, with no setting of pip's that is not here."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON", "SGLANG"))}
    done = subprocess.run(
        [str(part) for part in command],
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder for some 11 GB, gone afterwards: pytest would keep three of its own."""
    if shutil.which("unshare") is None or subprocess.run([*WITHOUT_NETWORK, "true"]).returncode:
        pytest.skip("this host does not let a process give its network up (unshare)")
    with tempfile.TemporaryDirectory(prefix="sglang-spec-") as name:
        if shutil.disk_usage(name).free < GIB_NEEDED * 2**30:
            pytest.skip(f"{name}: {GIB_NEEDED} GiB are needed")
        yield Path(name)


# 3 to 5 GB are fetched and 7 GB unpacked for each Python: about five minutes and a package index.
@pytest.mark.full
@pytest.mark.parametrize("tag", PIN.tags)
def test_a_host_without_a_network_gets_a_whole_environment(tag: str, place: Path) -> None:
    python = interpreters(PIN.tags).get(tag)
    if python is None:
        pytest.skip(f"no interpreter for {tag} on this host")
    root, wheels, venv = checkout().root, place / "wheels", place / f"venv-{tag}"
    made = run(
        *(sys.executable, "-m", "vendoring", "wheel", place / "dist", "--python-tag", tag),
        PYTHONPATH=str(checkout().python),
        SGLANG_TARGET_DEVICE="cpu",
    ).splitlines()[0]
    # The options stand where the guide has none: the index, and what this host is told of it.
    asked = {k: v for k, v in os.environ.items() if k.startswith("PIP_")}
    pins = ("-c", root / "python" / "constraints-cpu.txt")
    given = (root / "sgl-kernel", made)
    run(python, "-m", "pip", "wheel", "-q", "--no-cache-dir", *pins, "-w", wheels, *given, **asked)
    run(python, "-m", "venv", venv)
    offline = {"PIP_CONFIG_FILE": os.devnull, "HOME": str(place), "TMPDIR": str(place)}
    install = ("install", "-q", "--no-compile", "--no-index", "-f", wheels, "sglang")
    run(*WITHOUT_NETWORK, venv / "bin" / "pip", *install, **offline)
    run(*WITHOUT_NETWORK, venv / "bin" / "pip", "check", **offline)
    code = (venv / "bin" / "python", "-I", "-c", ASKED)
    told, *files = run(*WITHOUT_NETWORK, *code, **offline).splitlines()[-3:]
    patches = read_series(checkout())
    version, patch_set = PIN.local_version, patch_set_hash(patches)
    assert told.split() == [version, version, PIN.version, patch_set]
    assert all(Path(file).is_relative_to(venv) for file in files), files
    said = run(*WITHOUT_NETWORK, venv / "bin" / "sglang-spec", "--version", **offline)
    assert said == f"SGLang {version}, {len(patches)} patches, patch set {patch_set[:12]}\n"
    shutil.rmtree(venv)
