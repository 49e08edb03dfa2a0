"""The ranks of one environment of `comm-bench`: started together, told to measure, ended."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Of the user's and the host's variables these stay; the rest of NCCL's is what a candidate says.
_KEPT = ("NCCL_NVLS_ENABLE", "NCCL_SO_PATH", "NCCL_SOCKET_IFNAME", "NCCL_DEBUG")
# What SGLang sets for its ranks where nobody did.
PLAIN = {
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_GRAPH_REGISTER": "0",
    "CUDA_DEVICE_MAX_CONNECTIONS": "8",
}
# NVLink multicast stays off: on a shared host it is not ours to take.
NO_MULTICAST = {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
# Ranks of one host meet over the loop-back device: there may be no other.
ONE_HOST = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}


class TeamError(RuntimeError):
    """A rank ended or did not answer in time."""


class Late(TeamError):
    """A rank did not answer in time."""


class Team:
    """`world` ranks with the same environment. `name` is the candidate's."""

    def __init__(
        self, name: str, variables: Mapping[str, str], spec: Mapping[str, Any], folder: Path
    ) -> None:
        self.name, self.variables = name, dict(variables)
        folder.mkdir(parents=True)
        self._log = folder / "log"
        self._answers: list[queue.Queue[dict[str, Any] | None]] = []
        self._ranks = []
        for rank in range(spec["world"]):
            content = {**spec, "rank": rank, "meeting": str(folder / "store")}
            command = [sys.executable, "-m", "sglang_spec.comm.bench_rank", json.dumps(content)]
            with self._log.open("ab") as log:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=_environment(self.variables),
                    text=True,
                )
            answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
            threading.Thread(target=_listen, args=(process, answers), daemon=True).start()
            self._ranks.append(process)
            self._answers.append(answers)

    def ready(self, deadline: float) -> dict[str, Any]:
        """What rank 0 could build; TeamError if a rank ends or `deadline` (monotonic) passes."""
        first: dict[str, Any] = self._collect(deadline)[0]["ready"]
        return first

    def round(self, timeout: float) -> dict[str, dict[int, float]]:
        """library -> size (bytes) -> microseconds, of the slowest rank."""
        for process in self._ranks:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"do": "round"}) + "\n")
            process.stdin.flush()
        found = [one["microseconds"] for one in self._collect(time.monotonic() + timeout)]
        return {
            name: {int(size): max(one[name][size] for one in found) for size in sizes}
            for name, sizes in found[0].items()
        }

    def end(self) -> None:
        for process in self._ranks:
            process.kill()
        for process in self._ranks:
            process.wait()

    def last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "no words"

    def _collect(self, deadline: float) -> list[dict[str, Any]]:
        found = []
        for rank, answers in enumerate(self._answers):
            try:
                answer = answers.get(timeout=max(0.1, deadline - time.monotonic()))
            except queue.Empty:
                raise Late(f"{self.name}: rank {rank} does not answer") from None
            if answer is None:
                raise TeamError(f"{self.name}: rank {rank} ended: {self.last_words()}")
            if "failed" in answer:
                raise TeamError(f"{self.name}: rank {rank}: {answer['failed']}")
            found.append(answer)
        return found


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("NCCL_") or name in _KEPT
    }
    return {**ONE_HOST, **kept, **PLAIN, **NO_MULTICAST, **variables}


def _listen(process: subprocess.Popen[str], answers: queue.Queue[dict[str, Any] | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("@"):
            answers.put(json.loads(line[1:]))
    answers.put(None)
