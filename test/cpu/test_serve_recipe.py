"""`sglang-spec serve RECIPE` as a supervisor runs it: ready, its API key, drained on SIGTERM.

Slow: the command becomes the server in a fresh interpreter, so nothing is imported beforehand.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from kit.servers import LOGS
from sglang_spec import process
from sglang_spec.models import Pair

pytestmark = pytest.mark.full

KEY = "of-the-test"
TOKENS = 3000  # enough to be underway when it is told to stop
COMMAND = (sys.executable, "-m", "sglang_spec")


def recipe(folder: Path, pair: Pair, port: int) -> Path:
    secrets = folder / "secrets.yaml"
    secrets.write_text(f"api-key: {KEY}\n")
    secrets.chmod(0o600)
    path = folder / "tiny.toml"
    path.write_text(
        f'[model]\npath = "{pair.target}"\ndevice = "cpu"\ndtype = "bfloat16"\n'
        "mem_fraction_static = 0.85\n"
        f'[draft]\npath = "{pair.draft}"\nnum_steps = 3\nnum_draft_tokens = 4\n'
        "[capture]\noutputs_of_layers = [1, 3, 5]\n"
        "[limits]\nmax_running_requests = 4\nmax_total_tokens = 8192\n"
        f'[listen]\nport = {port}\nsecrets = "{secrets}"\n'
        '[extra]\nflags = ["--sleep-on-idle"]\n[extra.environment]\nOMP_NUM_THREADS = "1"\n'
    )
    return path


@pytest.fixture
def served(tiny: Pair, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path, str]]:
    """The running command, its recipe and URL."""
    port = process.free_port()
    path = recipe(tmp_path, tiny, port)
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / f"test-{os.getpid()}-recipe.log").open("wb") as log:
        child = subprocess.Popen(
            [*COMMAND, "serve", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield child, path, f"http://127.0.0.1:{port}"
        finally:
            for one in process.session_members(child.pid):
                one.kill()
            child.wait(30)


def test_ready_key_and_drain(served: tuple[subprocess.Popen[bytes], Path, str]) -> None:
    child, path, url = served
    waiting = [*COMMAND, "ready", str(path), "--timeout", "240"]
    assert subprocess.run(waiting, timeout=300).returncode == 0
    assert "sglang.launch_server" in psutil.Process(child.pid).cmdline()
    assert KEY not in " ".join(
        word for one in process.session_members(child.pid) for word in one.cmdline()
    )
    body = {"input_ids": [0, 70], "sampling_params": {"max_new_tokens": 8, "temperature": 0}}
    assert httpx.post(f"{url}/generate", json=body).status_code == 401
    assert httpx.get(f"{url}/ready").status_code == 200

    body["sampling_params"] = {"max_new_tokens": TOKENS, "temperature": 0}
    told: dict[str, Any] = {}

    def ask() -> None:
        headers = {"Authorization": f"Bearer {KEY}"}
        reply = httpx.post(f"{url}/generate", json=body, headers=headers, timeout=120)
        told.update(reply.json()["meta_info"], status=reply.status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(1.0)
    assert asking.is_alive()  # underway
    os.kill(child.pid, signal.SIGTERM)
    asking.join(120)
    assert told["status"] == 200 and told["completion_tokens"] == TOKENS
    assert told["spec_verify_ct"] < TOKENS / 3
    assert child.wait(120) == 0
    # The resource tracker unlinks what is left, and ends by itself.
    _, alive = psutil.wait_procs(process.session_members(child.pid), timeout=30)
    assert alive == []
