"""Gets the upstream wheel, checked by sha256: a given file, else the cache, else pip."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .disk import require_free
from .errors import VendoringError
from .interpreter import any_wheel
from .layout import wheel_cache_dir
from .pin import Pin, PinnedWheel
from .talk import say

WHEEL_VARIABLE = "SGLANG_UPSTREAM_WHEEL"
_ROOM = 64 * 1024 * 1024  # bytes; an upstream wheel has about 40 MB


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cached_path(wheel: PinnedWheel) -> Path:
    """Where the cache keeps a wheel; the folder is its hash."""
    return wheel_cache_dir() / wheel.sha256 / wheel.file


def resolve(pin: Pin, wheel: PinnedWheel) -> Path:
    """Path of the checked wheel file. Raises a named error on a wrong hash, or without network and
    wheel.
    """
    given = os.environ.get(WHEEL_VARIABLE)
    if given:
        return _given(Path(given), pin, wheel)
    cached = cached_path(wheel)
    if cached.is_file():
        if sha256_of(cached) == wheel.sha256:
            return cached
        say(f"the cached {wheel.file} is damaged, fetching it again")
        cached.unlink()
    return _fetch(pin, wheel)


def resolve_any(pin: Pin, tag: str | None = None) -> tuple[PinnedWheel, Path]:
    """A pinned wheel for work that imports nothing, and its file.

    That of `tag` if one is asked for; else the given one, whichever it is; else the running
    interpreter's; and before anything is fetched, any that is in the cache.
    """
    if tag is not None:
        return pin.wheel(tag), resolve(pin, pin.wheel(tag))
    given = os.environ.get(WHEEL_VARIABLE)
    if given and Path(given).is_file():
        found = sha256_of(Path(given))
        wheel = next((w for w in pin.wheels if w.sha256 == found), any_wheel(pin))
    else:
        preferred = sorted(pin.wheels, key=lambda w: w.tag != any_wheel(pin).tag)
        wheel = next((w for w in preferred if cached_path(w).is_file()), preferred[0])
    return wheel, resolve(pin, wheel)


def _given(path: Path, pin: Pin, wheel: PinnedWheel) -> Path:
    if not path.is_file():
        raise VendoringError(
            "the given upstream wheel does not exist",
            key=WHEEL_VARIABLE,
            value=str(path),
            remedy=f"name a copy of {wheel.file}, or unset {WHEEL_VARIABLE}",
        )
    _check(path, wheel, f"name an untouched copy of {wheel.file}")
    try:
        _keep(path, wheel)
    except OSError as fault:
        say(f"the wheel is used but not cached: {fault}")
    return path


def _check(path: Path, wheel: PinnedWheel, remedy: str) -> None:
    found = sha256_of(path)
    if found != wheel.sha256:
        raise VendoringError(
            f"the upstream wheel for {wheel.tag} has another hash than the pin",
            file=str(path),
            key="sha256",
            value=f"found {found}, pinned {wheel.sha256}",
            remedy=remedy,
        )


def _keep(path: Path, wheel: PinnedWheel) -> Path:
    """Copies a checked wheel into the cache; the last step is a rename."""
    target = cached_path(wheel)
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    require_free(target.parent, path.stat().st_size, "the wheel cache")
    partial = target.with_suffix(f".part{os.getpid()}")
    try:
        shutil.copyfile(path, partial)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _fetch(pin: Pin, wheel: PinnedWheel) -> Path:
    require_free(wheel_cache_dir(), _ROOM, "the upstream wheel")
    say(f"fetching {wheel.file} from the package index")
    with tempfile.TemporaryDirectory(prefix="sglang-spec-") as folder:
        path = download(pin.name, pin.version, Path(folder), wheel)
        _check(
            path, wheel, "do not use what the package index gave; tell the maintainers of this pin"
        )
        return _keep(path, wheel)


def download(name: str, version: str, folder: Path, wheel: PinnedWheel | None = None) -> Path:
    """Downloads one wheel by pip into `folder` and gives its path, unchecked.

    It is the one for the interpreter and platform of `wheel`, or for the running one.
    """
    command = [
        *(*pip_command(), "download", f"{name}=={version}", "--dest", str(folder)),
        *("--no-deps", "--only-binary=:all:", "--retries=2", "--no-input", "--quiet"),
        "--disable-pip-version-check",
    ]
    if wheel is not None:
        python = f"{wheel.tag[2]}.{wheel.tag[3:]}"
        command += ["--implementation", "cp", "--python-version", python, "--abi", wheel.tag]
        command += ["--platform", wheel.platform_tag]
    done = subprocess.run(
        command, capture_output=True, text=True, env=_pip_environment(), check=False
    )
    found = sorted(folder.glob("*.whl"))
    if done.returncode == 0 and len(found) == 1:
        return found[0]
    words = [line for line in done.stderr.splitlines() if line.strip()]
    raise VendoringError(
        "no network, or the package index has no such wheel: "
        f"pip cannot download {name} {version}" + (f" for {wheel.tag}" if wheel else ""),
        value=words[-1].strip() if words else f"pip ended with {done.returncode}",
        remedy=f"fetch the wheel on another host and name it: {WHEEL_VARIABLE}=FILE",
    )


def pip_command() -> list[str]:
    """The pip of the running interpreter; where it has none, the one on the path."""
    # Inside pip's build isolation pip cannot be imported here, but a child without that isolation
    # can.
    if _has_pip() or "PYTHONNOUSERSITE" in os.environ:
        return [sys.executable, "-m", "pip"]
    on_path = shutil.which("pip")
    if on_path is None:
        raise VendoringError(
            "this interpreter has no pip to fetch the upstream wheel with",
            value=sys.executable,
            remedy=f"install pip, or fetch the wheel by hand and name it: {WHEEL_VARIABLE}=FILE",
        )
    return [on_path]


def _has_pip() -> bool:
    # Not by its import, nor by a search for it: either makes setuptools refuse to load afterwards.
    return any(True for _ in importlib.metadata.distributions(name="pip"))


def _pip_environment() -> dict[str, str]:
    hidden = ("PYTHONPATH", "PYTHONNOUSERSITE", "PIP_REQ_TRACKER", "PIP_BUILD_TRACKER")
    return {key: value for key, value in os.environ.items() if key not in hidden}
