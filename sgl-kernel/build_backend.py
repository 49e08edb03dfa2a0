"""PEP 517 and PEP 660 hooks of a pure-Python package, standard library only: builds offline.

Refuses to build where a CUDA driver is present (see `src/sgl_kernel/host.py`): the wheel would
shadow the CUDA package.
"""

import base64
import hashlib
import io
import runpy
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "src"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
STEM = f"{PROJECT['name'].replace('-', '_')}-{PROJECT['version']}"
DIST_INFO = f"{STEM}.dist-info"
WHEEL_TAG = "py3-none-any"
EPOCH = (1980, 1, 1, 0, 0, 0)

Settings = dict[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return []


get_requires_for_build_editable = get_requires_for_build_sdist = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(directory: str, config_settings: Settings = None) -> str:
    _refuse_on_cuda_host()
    for name, data in _dist_info().items():
        path = Path(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return DIST_INFO


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(
    directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    return _write_wheel(directory, _modules(SOURCE))


def build_editable(
    directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    return _write_wheel(directory, {f"{PROJECT['name']}.pth": f"{SOURCE}\n".encode()})


def build_sdist(directory: str, config_settings: Settings = None) -> str:
    own = ("pyproject.toml", "README.md", "LICENSE", "build_backend.py")
    files = {name: (ROOT / name).read_bytes() for name in own}
    files |= {f"src/{name}": data for name, data in _modules(SOURCE).items()}
    files["PKG-INFO"] = _metadata()
    archive = f"{STEM}.tar.gz"
    with tarfile.open(Path(directory, archive), "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{STEM}/{name}")
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return archive


def _refuse_on_cuda_host() -> None:
    reason = runpy.run_path(str(SOURCE / "sgl_kernel" / "host.py"))["build_refusal"]()
    if reason is not None:
        raise SystemExit(f"error: {reason}")


def _modules(folder: Path) -> dict[str, bytes]:
    paths = [*folder.rglob("*.py"), *folder.rglob("py.typed")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def _metadata() -> bytes:
    fields = {
        "Metadata-Version": "2.4",
        "Name": PROJECT["name"],
        "Version": PROJECT["version"],
        "Summary": PROJECT["description"],
        "License-Expression": PROJECT["license"],
        "License-File": "LICENSE",
        "Requires-Python": PROJECT["requires-python"],
    }
    lines = [f"{key}: {value}" for key, value in fields.items()]
    lines += [f"Requires-Dist: {requirement}" for requirement in PROJECT["dependencies"]]
    lines += ["Description-Content-Type: text/markdown", "", (ROOT / "README.md").read_text()]
    return "\n".join(lines).encode()


def _dist_info() -> dict[str, bytes]:
    wheel = (
        f"Wheel-Version: 1.0\nGenerator: build_backend\nRoot-Is-Purelib: true\nTag: {WHEEL_TAG}\n"
    )
    return {
        f"{DIST_INFO}/METADATA": _metadata(),
        f"{DIST_INFO}/WHEEL": wheel.encode(),
        f"{DIST_INFO}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
    }


def _write_wheel(directory: str, modules: dict[str, bytes]) -> str:
    _refuse_on_cuda_host()
    files = modules | _dist_info()
    record = "".join(
        f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in sorted(files.items())
    )
    files[f"{DIST_INFO}/RECORD"] = f"{record}{DIST_INFO}/RECORD,,\n".encode()
    wheel = f"{STEM}-{WHEEL_TAG}.whl"
    with zipfile.ZipFile(Path(directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, date_time=EPOCH)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
