"""The package around the operators: where it refuses to load, what it refuses to offer, how it is
built. A driver is played by some other shared library under the driver's name."""

import base64
import csv
import hashlib
import importlib
import importlib.metadata
import importlib.util
import io
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sgl_kernel
import torch
from sgl_kernel import host

PROJECT = Path(__file__).resolve().parents[3] / "sgl-kernel"
WHEEL = "sglang_kernel-0.4.10+cpu-py3-none-any.whl"


@pytest.fixture
def driver(tmp_path: Path) -> dict[str, str]:
    """An environment in which `libcuda.so.1` loads."""
    mapped = Path("/proc/self/maps").read_text().split()
    library = next(name for name in mapped if "/libc.so" in name)
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / host.DRIVER_LIBRARY).symlink_to(library)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG_")}
    return clean | {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(PROJECT / "src")}


def python(code: str, env: dict[str, str], cwd: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=cwd, capture_output=True, text=True, timeout=600
    )


def test_import_on_a_cuda_host_is_refused(driver: dict[str, str]) -> None:
    result = python("import sgl_kernel", driver)
    assert result.returncode != 0
    assert "ImportError" in result.stderr
    for part in (
        "libcuda.so.1 loads",
        "sglang-kernel==0.4.10",
        "SGLANG_KERNEL_ALLOW_CPU_ON_CUDA=1",
    ):
        assert part in result.stderr


def test_import_can_be_forced_and_leaves_room_for_shape_functions(driver: dict[str, str]) -> None:
    """SGLang registers its own shape functions for the attention operators; torch allows one."""
    code = (
        "import torch, sgl_kernel\n"
        "for name in ('decode_attention_cpu', 'extend_attention_cpu'):\n"
        "    torch.library.register_fake(f'sgl_kernel::{name}')(lambda *a, **k: None)\n"
        "print(sgl_kernel.__version__)\n"
    )
    result = python(code, driver | {host.IMPORT_OVERRIDE: "1"})
    assert (result.stdout.strip(), result.returncode) == ("0.4.10+cpu", 0), result.stderr


def test_a_device_seen_by_torch_alone_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cuda_driver_loads", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    reason = host.import_refusal({})
    assert reason is not None
    assert "torch.cuda.is_available()" in reason
    assert host.import_refusal({host.IMPORT_OVERRIDE: "1"}) is None


def test_other_values_of_the_override_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cuda_driver_loads", lambda: True)
    assert host.import_refusal({host.IMPORT_OVERRIDE: "0"}) is not None


def test_build_on_a_cuda_host_is_refused(driver: dict[str, str], tmp_path: Path) -> None:
    for hook in ("build_wheel", "build_editable", "prepare_metadata_for_build_wheel"):
        result = python(f"import build_backend; build_backend.{hook}({str(tmp_path)!r})", driver)
        assert result.returncode != 0
        assert "would shadow the CUDA package" in result.stderr
        assert "SGLANG_TARGET_DEVICE=cpu" in result.stderr
    assert not list(tmp_path.glob("*.whl"))


def test_build_for_the_cpu_is_allowed_on_a_cuda_host(
    driver: dict[str, str], tmp_path: Path
) -> None:
    code = f"import build_backend; print(build_backend.build_wheel({str(tmp_path)!r}))"
    result = python(code, driver | {host.TARGET_DEVICE: "cpu"})
    assert result.stdout.strip() == WHEEL, result.stderr


@pytest.mark.parametrize("name", ["silu_and_mul", "flash_attn", "rmsnorm_cpu"])
def test_what_is_not_offered_is_refused_by_name(name: str) -> None:
    text = rf"sgl_kernel\.{name} is not offered by the CPU package"
    with pytest.raises(AttributeError, match=text):
        getattr(sgl_kernel, name)
    for statement in (f"from sgl_kernel import {name}", f"import sgl_kernel.{name}"):
        with pytest.raises(ImportError, match=text):
            exec(statement, {})


def test_probes_keep_working() -> None:
    """SGLang asks `hasattr` which kernels there are; "no AMX" must be the answer."""
    assert not hasattr(sgl_kernel, "top_k_renorm_prob")
    assert not hasattr(torch.ops.sgl_kernel, "convert_weight_packed")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        importlib.import_module("no_such_package")


def test_everything_announced_is_there() -> None:
    assert all(callable(getattr(sgl_kernel, name)) for name in sgl_kernel.__all__)
    for name in ("decode_attention_cpu", "extend_attention_cpu", "murmur_hash32_cpu"):
        assert hasattr(getattr(torch.ops.sgl_kernel, name), "default")


def test_schemas_name_what_is_written() -> None:
    """torch itself runs the operators and compares what they change with what they declare."""
    q, cache, rows = torch.randn(2, 4, 8), torch.randn(9, 2, 8), torch.tensor([0, 1])
    table, ends = torch.arange(1, 9).int().view(2, 4), torch.tensor([4, 3])
    k, loc, ops = torch.randn(2, 2, 8), torch.tensor([4, 7]), torch.ops.sgl_kernel
    where = (table, rows, ends)
    torch.library.opcheck(
        ops.decode_attention_cpu.default,
        (q, cache, cache.clone(), 1.0, 1.0, q.clone(), k, k, loc, None, *where, 0.3, 0.0, False, 0),
        test_utils="test_schema",
    )
    one = (torch.tensor([1, 1]), torch.tensor([0, 1]), 1)
    torch.library.opcheck(
        ops.extend_attention_cpu.default,
        (q, k, k, q.clone(), cache, cache.clone(), 1.0, 1.0, *where, *one, 0.3, 0.0, False, 0),
        test_utils="test_schema",
    )


def test_version_satisfies_what_sglang_asks_for() -> None:
    packaging = pytest.importorskip("packaging.specifiers")
    assert packaging.SpecifierSet("==0.4.10").contains(sgl_kernel.__version__)
    assert packaging.SpecifierSet(">=0.4.9").contains(sgl_kernel.__version__)


# The build.


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build backend, told to build for the CPU."""
    monkeypatch.setenv(host.TARGET_DEVICE, "cpu")
    spec = importlib.util.spec_from_file_location("build_backend", PROJECT / "build_backend.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_wheel_holds_the_modules_and_a_true_record(backend: Any, tmp_path: Path) -> None:
    assert backend.build_wheel(str(tmp_path)) == WHEEL
    files = contents(tmp_path / WHEEL)
    modules = {
        path.relative_to(PROJECT / "src").as_posix() for path in (PROJECT / "src").rglob("*.py")
    }
    assert modules <= files.keys()
    assert "sgl_kernel/py.typed" in files
    info = "sglang_kernel-0.4.10+cpu.dist-info"
    recorded = {row[0]: row[1] for row in csv.reader(io.StringIO(files[f"{info}/RECORD"].decode()))}
    assert recorded.keys() == files.keys()
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert recorded[name] in ("", f"sha256={digest}")
    assert [name for name, digest in recorded.items() if not digest] == [f"{info}/RECORD"]


def test_two_builds_are_equal(backend: Any, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        backend.build_wheel(str(tmp_path / folder))
    assert (tmp_path / "one" / WHEEL).read_bytes() == (tmp_path / "two" / WHEEL).read_bytes()


def test_metadata_and_versions_agree(backend: Any, tmp_path: Path) -> None:
    info = tmp_path / backend.prepare_metadata_for_build_wheel(str(tmp_path))
    metadata = importlib.metadata.PathDistribution(info).metadata
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert metadata["Name"] == project["name"] == "sglang-kernel"
    assert metadata["Version"] == project["version"] == sgl_kernel.__version__ == "0.4.10+cpu"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("Requires-Dist") == ["torch"]


def test_editable_wheel_points_at_the_sources(backend: Any, tmp_path: Path) -> None:
    files = contents(tmp_path / backend.build_editable(str(tmp_path)))
    assert files["sglang-kernel.pth"].decode().strip() == str(PROJECT / "src")
    assert not any(name.endswith(".py") for name in files)


def test_sdist_builds_the_same_wheel(backend: Any, tmp_path: Path) -> None:
    backend.build_wheel(str(tmp_path))
    with tarfile.open(tmp_path / backend.build_sdist(str(tmp_path))) as tar:
        tar.extractall(tmp_path, filter="data")
    unpacked = tmp_path / "sglang_kernel-0.4.10+cpu"
    (tmp_path / "again").mkdir()
    code = f"import build_backend; build_backend.build_wheel({str(tmp_path / 'again')!r})"
    result = python(code, os.environ | {host.TARGET_DEVICE: "cpu"}, cwd=unpacked)
    assert result.returncode == 0, result.stderr
    assert contents(tmp_path / WHEEL) == contents(tmp_path / "again" / WHEEL)


def test_pip_installs_it_offline(tmp_path: Path) -> None:
    # Its import here would make setuptools, and with it torch's compiler, fail in later tests.
    if not list(importlib.metadata.distributions(name="pip")):
        pytest.skip("needs pip in this environment")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    env = os.environ | {host.TARGET_DEVICE: "cpu"}
    subprocess.run([*command, "--target", str(tmp_path), str(PROJECT)], env=env, check=True)
    (found,) = importlib.metadata.distributions(name="sglang-kernel", path=[str(tmp_path)])
    assert found.version == "0.4.10+cpu"
    assert (tmp_path / "sgl_kernel" / "attention" / "decode.py").is_file()
