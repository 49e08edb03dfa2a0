"""The parent's side of `generator`: loads sent to a server, and what came back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from .. import host
from ..process import die_with_parent
from .cells import Cell


class TrafficError(RuntimeError):
    """The generator, or the server under it, did not answer; the text says what is known."""


@dataclass(frozen=True)
class Answer:
    """One request's end: token ids, the server's count of its prompt, its own counters.

    `histogram[i]` counts its verify cycles that accepted exactly i drafts; `error` is empty for a
    request that was answered. `proposed_drafts` is None where the server does not tell.
    """

    tokens: tuple[int, ...]
    prompt_tokens: int | None
    cycles: int
    correct_drafts: int
    histogram: tuple[int, ...]
    error: str
    proposed_drafts: int | None = None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Answer:
        return cls(
            tuple(told["tokens"]),
            told["prompt_tokens"],
            told["cycles"],
            told["correct_drafts"],
            tuple(told["histogram"]),
            told["error"],
            told.get("proposed_drafts"),
        )


@dataclass(frozen=True)
class Reply:
    """`figures` by the names of upstream's benchmark; `answers` in the order of the prompts."""

    figures: Mapping[str, float]
    answers: tuple[Answer, ...]


class Generator:
    """The process. It starts at once and is waited for at the first `send`."""

    def __init__(self, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._number = 0
        self._ready = False
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sglang_spec.bench.generator"],
                env={**host.engine_environment(), "PYTHONWARNINGS": "ignore"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                bufsize=1,
                start_new_session=True,  # Ctrl-C is for the parent, which ends it in order
                preexec_fn=die_with_parent,
            )

    def send(
        self,
        url: str,
        cell: Cell,
        prompts: Sequence[Sequence[int]],
        seed: int = 0,
        stop_at_eos: bool = False,
    ) -> Reply:
        """Run the load of `cell` against `url`, greedy, on an empty prefix cache."""
        if not self._ready:
            self._ready = bool(self._read()["ready"])
        self._number += 1
        job = {
            "number": f"{os.getpid()}-{self._number}",
            "url": url,
            "prompts": [list(ids) for ids in prompts],
            "new_tokens": cell.new_tokens,
            "concurrency": cell.concurrency,
            "rate": cell.rate,
            "seed": seed,
            "stop_at_eos": stop_at_eos,
        }
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
        except BrokenPipeError:
            raise self._gone() from None
        told = self._read()
        if "error" in told:
            raise TrafficError(f"{url}, {cell.key}: {told['error']}")
        return Reply(told["result"], tuple(Answer.of(one) for one in told["answers"]))

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._gone()
        told: dict[str, Any] = json.loads(line)
        return told

    def _gone(self) -> TrafficError:
        code = self._process.wait()
        tail = self._log.read_text(errors="replace").splitlines()[-8:]
        return TrafficError("\n".join([f"the load generator ended with {code}:", *tail]))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Generator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
