"""Sends prompts to a server that captures, a bounded number at a time, and notes finished samples.

A sample is noted when its file is there, so that a list of samples never names one that is not.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx

from .dump import SAMPLES
from .prompts import Prompt

_AT_ONCE = 32
_FILE_TIMEOUT = 120.0


class ExtractError(RuntimeError):
    """The dump cannot be made, or goes on from one that was made otherwise."""


@dataclass
class Progress:
    """What has been written so far; `told` is called after every sample."""

    told: Callable[[Progress], None] = lambda progress: None
    samples: int = 0
    tokens: int = 0
    skipped: int = 0
    began: float = 0.0

    @property
    def tokens_a_second(self) -> float:
        return self.tokens / max(time.perf_counter() - self.began, 1e-9)


class Recorder:
    """Appends finished samples to the list, whole lines at a time."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self._file = (folder / SAMPLES).open("a")
        self._lock = threading.Lock()
        self._progress = progress

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def skip(self) -> None:
        self._progress.skipped += 1

    def add(self, prompt: Prompt, file: Path) -> None:
        entry: dict[str, Any] = {
            "id": prompt.number,
            "file": str(file),
            "tokens": len(prompt.input_ids),
        }
        if prompt.loss_runs:
            entry["loss_runs"] = prompt.loss_runs
        with self._lock:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
            self._progress.samples += 1
            self._progress.tokens += len(prompt.input_ids)
            self._progress.told(self._progress)


def send_all(
    url: str, folder: Path, prompts: Iterable[Prompt], done: set[int], recorder: Recorder
) -> None:
    """Have a server that was started by `launch` capture every prompt that is not `done`."""
    writer: Any = import_module("sglang_spec.hardening.capture_writer")
    limits = httpx.Limits(max_connections=_AT_ONCE)
    with (
        httpx.Client(base_url=url, timeout=None, limits=limits) as client,
        ThreadPoolExecutor(_AT_ONCE) as pool,
    ):

        def send(prompt: Prompt) -> None:
            file = writer.sample_file(prompt.number)
            _prefill(client, prompt)
            _await_file(folder / file)
            recorder.add(prompt, file)

        running: set[Future[None]] = set()
        for prompt in prompts:
            if prompt.number in done:
                recorder.skip()
                continue
            if len(running) >= _AT_ONCE:
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for one in finished:
                    one.result()
            running.add(pool.submit(send, prompt))
        for one in running:
            one.result()


def _prefill(client: httpx.Client, prompt: Prompt) -> None:
    answer = client.post(
        "/generate",
        json={
            "rid": f"capture-{prompt.number:08d}",
            "input_ids": prompt.input_ids,
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            "return_hidden_states": True,
        },
    )
    if answer.status_code != 200:
        raise ExtractError(f"prompt {prompt.number}: {answer.status_code} {answer.text[:300]}")


def _await_file(path: Path) -> None:
    """The answer comes when the states are queued; the file a moment later."""
    deadline = time.monotonic() + _FILE_TIMEOUT
    while not path.is_file():
        if time.monotonic() > deadline:
            raise ExtractError(f"{path} was not written; the reason is in the server's log")
        time.sleep(0.01)
