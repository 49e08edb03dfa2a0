"""Make `.venv`: one virtual environment that serves every target of the Makefile.

Standard library only, because it runs before anything is installed. It checks the interpreter and
the free disk space first, then installs the patched SGLang (`pip install -e python`) and the
development tools, and writes a stamp so that a second run only looks whether the tree is current.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ((3, 11), (3, 12))
# torch and the CUDA libraries it names cannot be avoided from the package index, also on a CPU.
GIB_NEEDED = {"cpu": 11, "cuda": 24}
STAMPED = (
    "pyproject.toml",
    "python/pyproject.toml",
    "python/constraints-cpu.txt",
    "patches/upstream.toml",
    "sgl-kernel/pyproject.toml",
    "tools/venv.py",
)
PR_SET_PDEATHSIG = 1


class Refused(Exception):
    """Something the person has to change; the text says what and how."""


def target_device() -> str:
    """`cuda` where an NVIDIA driver is loaded, else `cpu`; SGLANG_TARGET_DEVICE wins."""
    asked = os.environ.get("SGLANG_TARGET_DEVICE")
    if asked:
        if asked not in GIB_NEEDED:
            raise Refused(f"SGLANG_TARGET_DEVICE={asked!r}: use one of {', '.join(GIB_NEEDED)}")
        return asked
    return "cuda" if Path("/proc/driver/nvidia/version").exists() else "cpu"


def fingerprint(device: str) -> str:
    """What decides whether an existing environment can be kept."""
    digest = hashlib.sha256(f"{device} {sys.version_info[:2]} {ROOT}".encode())
    for name in STAMPED:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def check_interpreter() -> None:
    if sys.version_info[:2] not in PYTHONS:
        wanted = " or ".join(".".join(map(str, v)) for v in PYTHONS)
        raise Refused(
            f"Python {sys.version_info[0]}.{sys.version_info[1]} has no pinned SGLang wheel: "
            f"use CPython {wanted}, for example `make PYTHON=python3.11 …`"
        )


def check_disk(venv: Path, device: str) -> None:
    place = next(p for p in (venv, *venv.parents) if p.exists())
    free = shutil.disk_usage(place).free / 2**30
    if free < GIB_NEEDED[device]:
        raise Refused(
            f"{place}: {free:.1f} GiB free, {GIB_NEEDED[device]} GiB needed for the {device} "
            f"environment; free some space, or put it elsewhere with `make VENV=/other/disk/venv …`"
        )


def die_with_parent() -> None:
    """So that killing `make` never leaves a pip behind (Linux)."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(*command: str | Path, **env: str) -> None:
    shown = " ".join(str(part) for part in command)
    print(f"venv: {shown}", file=sys.stderr, flush=True)
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **env},
        stdout=sys.stderr,
        preexec_fn=die_with_parent,
    )
    if done.returncode:
        raise Refused(f"`{shown}` failed with exit code {done.returncode}; its output is above")


def install(venv: Path, device: str) -> None:
    check_disk(venv, device)
    if not (venv / "bin/python").exists():
        run(sys.executable, "-m", "venv", venv)
    python = venv / "bin/python"
    run(python, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1")
    pins = ("-c", "python/constraints-cpu.txt") if device == "cpu" else ()
    run(
        *(python, "-m", "pip", "install", "--progress-bar", "off", *pins),
        *("-e", "python", "--group", "dev"),
        SGLANG_TARGET_DEVICE=device,
    )
    if device == "cpu":
        # The operators are ours to edit: an editable install instead of the copy made above.
        run(python, "-m", "pip", "install", "--quiet", "--no-deps", "-e", "sgl-kernel")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    venv = parser.parse_args().venv.resolve()
    stamp = venv / "sglang-spec.stamp"
    try:
        check_interpreter()
        device = target_device()
        wanted = fingerprint(device)
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            install(venv, device)
            stamp.write_text(wanted)
        subprocess.run(
            [venv / "bin/python", "-m", "vendoring", "apply", "--keep-edits"],
            cwd=ROOT / "python",
            check=True,
            stdout=sys.stderr,
            preexec_fn=die_with_parent,
        )
    except Refused as refusal:
        print(f"venv: {refusal}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as failed:
        return failed.returncode  # vendoring has said what is wrong
    except KeyboardInterrupt:
        print("venv: interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
