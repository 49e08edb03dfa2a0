"""The build backend, wheels, the overlay: what pip and a machine with the plain wheel get."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from kit.pythons import interpreters
from kit.vendoring_project import HEADER, TAG, Project, make_wheel, sha256
from vendoring.errors import VendoringError
from vendoring.layout import checkout
from vendoring.metadata import requirements
from vendoring.pin import TargetDevice, read_pin
from vendoring.stamp import read_stamp
from vendoring.wheel_cache import cached_path


def hook(project: Project, name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Calls one hook of the backend as a front end does: in a process, in `python/`."""
    folder.mkdir(exist_ok=True)
    code = f"from vendoring import backend; print(backend.{name}({str(folder)!r}))"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.layout.python,
        env=project.environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def built(project: Project, name: str, folder: Path) -> zipfile.ZipFile:
    done = hook(project, name, folder)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(folder / done.stdout.strip())


def metadata(archive: zipfile.ZipFile) -> str:
    name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    return archive.read(name).decode()


def needs(archive: zipfile.ZipFile) -> list[str]:
    head = metadata(archive).split("\n\n# A description")[0]
    lines = head.split("\n")
    return [x.removeprefix("Requires-Dist: ") for x in lines if x.startswith("Requires-Dist: ")]


def check_record(archive: zipfile.ZipFile) -> None:
    record = next(name for name in archive.namelist() if name.endswith("/RECORD"))
    rows = list(csv.reader(archive.read(record).decode().splitlines()))
    assert {row[0] for row in rows} == set(archive.namelist())
    for name, digest, _ in rows:
        if name != record:
            found = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest())
            assert digest == "sha256=" + found.decode().rstrip("=")


def test_editable_wheel_makes_the_tree_and_points_to_it(patched: Project, tmp_path: Path) -> None:
    patched.layout.stamp.unlink()
    archive = built(patched, "build_editable", tmp_path / "out")
    assert patched.layout.stamp.is_file()
    assert archive.read("_sglang_spec_checkout.pth").decode() == f"{patched.layout.python}\n"
    check_record(archive)


def test_metadata_is_upstreams_with_our_version_and_requirements(
    project: Project, tmp_path: Path
) -> None:
    archive = built(project, "build_wheel", tmp_path / "out")
    text = metadata(archive)
    assert "\nVersion: 9.9.1+spec.1\n" in text
    assert "with an empty line in it\nRequires-Python: >=3.11\n" in text
    assert text.endswith("# A description\n\nRequires-Dist: not-a-requirement\n")
    assert needs(archive) == [
        "alpha==1.0",
        'cuda_thing[cu13]>=2; sys_platform == "linux"',
        "sglang-kernel==0.4.10",
        'beta; extra == "more"',
        "gamma>=3",
    ]
    entry_points = archive.read("sglang-9.9.1+spec.1.dist-info/entry_points.txt").decode()
    assert "sglang-spec = sglang_spec.cli:main" in entry_points
    assert "sglang = sglang.cli.main:main" in entry_points


def test_cpu_leaves_out_cuda_and_takes_the_checkouts_kernels(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_TARGET_DEVICE", "cpu")
    folder = (project.root / "sgl-kernel").as_uri()
    assert needs(built(project, "build_editable", tmp_path / "a")) == [
        "alpha==1.0",
        f"sglang-kernel @ {folder}",
        'beta; extra == "more"',
        "gamma>=3",
    ]
    assert "sglang-kernel==0.4.10+cpu" in needs(built(project, "build_wheel", tmp_path / "b"))


def test_unknown_device_is_refused_by_name(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_TARGET_DEVICE", "abacus")
    done = hook(project, "prepare_metadata_for_build_editable", tmp_path / "out")
    assert done.returncode == 1
    assert "abacus" in done.stderr and "cuda, cpu" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_hash_stops_the_build_before_the_tree(project: Project, tmp_path: Path) -> None:
    project.pin(sha="0" * 64)
    done = hook(project, "build_editable", tmp_path / "out")
    assert done.returncode == 1 and sha256(project.wheel) in done.stderr
    assert not project.layout.stamp.exists()


def test_no_source_distribution(project: Project, tmp_path: Path) -> None:
    assert hook(project, "build_sdist", tmp_path / "out").returncode == 1


def test_list_that_upstream_outgrew_is_an_error() -> None:
    device = TargetDevice("cpu", ("gone-thing",))
    with pytest.raises(VendoringError, match="gone-thing"):
        requirements(["alpha", 'gone-thing; extra == "x"'], device, "")


def test_kernel_of_another_version_is_an_error() -> None:
    device = TargetDevice("cpu", (), "sglang-kernel", "0.4.9+cpu", "sgl-kernel")
    with pytest.raises(VendoringError, match="another version"):
        requirements(["sglang-kernel==0.4.10"], device, "x")


def test_pip_installs_the_checkout_from_both_folders(patched: Project, tmp_path: Path) -> None:
    """A real `pip install -e` into an empty environment; both folders give the same."""
    (patched.root / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "vendoring.backend"\n'
        'backend-path = ["python"]\n'
    )
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    for folder in (patched.layout.python, patched.root):
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps"]
        subprocess.run([*pip, "--no-index", "-q", "-e", folder], cwd=tmp_path, check=True)
        code = "import sglang, importlib.metadata as m; print(m.version('sglang'), sglang.__file__)"
        done = subprocess.run(
            [python, "-I", "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["9.9.1+spec.1", str(patched.tree / "__init__.py")]


def test_wheel_holds_the_patched_tree_and_is_reproducible(patched: Project, tmp_path: Path) -> None:
    first = json.loads(patched.fine("wheel", str(tmp_path / "a"), "--json"))
    second = json.loads(patched.fine("wheel", str(tmp_path / "b"), "--json"))
    assert first["sha256"] == second["sha256"]
    assert Path(first["sbom"]).read_bytes() == Path(second["sbom"]).read_bytes()
    archive = zipfile.ZipFile(first["wheel"])
    check_record(archive)
    for name, data in patched.snapshot().items():
        assert archive.read(f"sglang/{name}") == data
    assert archive.read("sglang/_spec_pin.json") == patched.layout.stamp.read_bytes()


def test_wheel_for_another_interpreter(project: Project, tmp_path: Path) -> None:
    project.fine("wheel", str(tmp_path / "out"), "--python-tag", "cp399")
    assert len(list((tmp_path / "out").glob("*-cp399-cp399-*.whl"))) == 1


def test_bill_of_materials(patched: Project, tmp_path: Path) -> None:
    made = json.loads(patched.fine("wheel", str(tmp_path / "out"), "--json"))
    bill = json.loads(Path(made["sbom"]).read_text())
    by_name = {component["name"]: component for component in bill["components"]}
    assert by_name["sglang"]["hashes"][0]["content"] == sha256(patched.wheel)
    path = patched.layout.patches / "widen.patch"
    assert by_name["patches/widen.patch"]["hashes"][0]["content"] == sha256(path)
    assert by_name["alpha"]["purl"] == "pkg:pypi/alpha@1.0"
    assert "beta" not in by_name
    assert bill["metadata"]["component"]["hashes"][0]["content"] == made["sha256"]


def test_bill_is_valid_cyclonedx(patched: Project, tmp_path: Path) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json")
    from cyclonedx.schema import SchemaVersion

    bug = "Bug: https://example.org/issues/1 (and what people add)"
    patched.patch("third", "srt/engine.py", "LINE_7", "SEVEN", HEADER.replace("Bug: none", bug))
    made = json.loads(patched.fine("wheel", str(tmp_path / "out"), "--json"))
    bill = Path(made["sbom"]).read_text()
    assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None
    patches = json.loads(bill)["metadata"]["component"]["pedigree"]["patches"]
    assert patches[2]["resolves"][0]["references"] == ["https://example.org/issues/1"]


def without_network() -> list[str]:
    """A command prefix that takes the network away, empty where this host does not allow it."""
    prefix = ["unshare", "--map-root-user", "--net"]
    try:
        done = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return []
    return prefix if done.returncode == 0 else []


# Its parent package would import torch and a hundred others; the wheels of those are not the
# subject here.
VERSION = """
import importlib.metadata, pathlib, sys, sysconfig, types
tree = pathlib.Path(sysconfig.get_path("purelib"), "sglang")
parent = sys.modules["sglang"] = types.ModuleType("sglang")
parent.__path__ = [str(tree)]
import sglang.version
print(importlib.metadata.version("sglang"), sglang.version.__version__, sglang.version.__file__)
"""


def installed_version(wheel: Path, python: str, folder: Path) -> list[str]:
    """Installs a wheel into an empty environment and gives what the package then says it is."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    inside = folder / "bin" / "python"
    pip = [inside, "-m", "pip", "install", "--no-index", "--no-deps", "--no-compile", "-q", wheel]
    subprocess.run([*without_network(), *pip], check=True)
    code = [inside, "-I", "-c", VERSION]
    return subprocess.run(code, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.full  # two wheels of 40 MB, and two environments with six thousand files each
@pytest.mark.parametrize("tag", read_pin(checkout().pin).tags)
def test_real_wheel_installs_without_a_network(tag: str, tmp_path: Path) -> None:
    """For both Pythons, from this host's one; its version and its stamp come with it."""
    python = interpreters([tag]).get(tag)
    upstream = cached_path(read_pin(checkout().pin).wheel(tag))
    if python is None or not upstream.is_file():
        pytest.skip(f"no interpreter or no cached wheel for {tag}")
    command = [sys.executable, "-m", "vendoring", "wheel", str(tmp_path), "--python-tag", tag]
    environment = {k: v for k, v in os.environ.items() if k != "SGLANG_UPSTREAM_WHEEL"}
    made = subprocess.run(
        [*command, "--json"],
        cwd=checkout().python,
        env=environment | {"PYTHONPATH": str(checkout().python)},
        capture_output=True,
        text=True,
        check=True,
    )
    wheel = Path(json.loads(made.stdout)["wheel"])
    version = read_pin(checkout().pin).local_version
    found = installed_version(wheel, python, tmp_path / "venv")
    assert found[:2] == [version, version]
    assert found[2].startswith(str(tmp_path / "venv"))


def test_overlay_is_only_what_differs(patched: Project, tmp_path: Path) -> None:
    folder = tmp_path / "overlay"
    done = json.loads(patched.fine("overlay", str(folder), "--python-tag", "cp399", "--json"))
    assert done["files"] == [
        "sglang/_spec_pin.json",
        "sglang/srt/args.py",
        "sglang/srt/engine.py",
        "sglang/srt/spec_hardening/__init__.py",
    ]
    engine = (folder / "sglang" / "srt" / "engine.py").read_bytes()
    assert engine == (patched.tree / "srt" / "engine.py").read_bytes()
    stamp, made = read_stamp(folder / "sglang" / "_spec_pin.json"), read_stamp(patched.layout.stamp)
    assert stamp is not None and made is not None and stamp["tag"] == "cp399"
    assert (stamp["files"], stamp["own"]) == (made["files"], made["own"])


def test_overlay_needs_an_export_or_a_word(patched: Project, tmp_path: Path) -> None:
    patched.edit("srt/engine.py", "LINE_7", "SEVEN")
    done = patched.command("overlay", str(tmp_path / "overlay"))
    assert done.returncode == 1 and "--with-edits" in done.stderr
    patched.fine("overlay", str(tmp_path / "overlay"), "--with-edits")
    assert "SEVEN" in (tmp_path / "overlay" / "sglang" / "srt" / "engine.py").read_text()


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("spec = 1", "spec = 0", "upstream.spec"),
        ("spec = 1", "spec = 1\nextra = 2", "upstream.extra"),
        (f"[wheels.{TAG}]", "[wheels.cp310]", "wheels.cp310.file"),
        ('sha256 = "', 'sha256 = "x', f"wheels.{TAG}.sha256"),
        ('leave-out = ["cuda-thing"]', "leave-out = [1]", "devices.cpu.leave-out"),
    ],
)
def test_pin_with_a_bad_value_is_refused(project: Project, old: str, new: str, key: str) -> None:
    path = project.layout.pin
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(VendoringError) as caught:
        read_pin(path)
    assert caught.value.key == key


def test_wheel_with_a_name_that_leads_outside(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(tmp_path / "evil", {"../../../evil.py": "x = 1\n"})
    monkeypatch.setenv("SGLANG_UPSTREAM_WHEEL", str(wheel))
    project.pin(sha=sha256(wheel))
    done = project.command("apply")
    assert done.returncode == 1 and "leads outside" in done.stderr
    assert not list(tmp_path.rglob("evil.py"))
