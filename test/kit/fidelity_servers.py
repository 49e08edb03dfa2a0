"""The servers of `test/cpu/test_fidelity*.py`: the tiny pair, plain and in several modes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny import TINY, TINY_HALF, Oracle, Plan
from sglang_spec.server import Launch, Server, Speculation

from kit import same_answers, tampered, thinking
from kit.asking import Ask, Reply
from kit.servers import ServerPool

ORACLE = Oracle(TINY)
PROMPT = (0, *range(70, 110))
COMING = ORACLE.greedy(PROMPT, 40)
# With overlap scheduling plain decoding learns of each token one step late, so its penalties and
# processors are no judge. Speculation on a CPU runs without overlap in any case.
PLAIN = (
    *("--max-running-requests", "64", "--enable-custom-logit-processor"),
    *("--enable-deterministic-inference", "--disable-overlap-schedule"),
    *thinking.PARSER,
)
# Steps, topk and drafted tokens. The pair with half a vocabulary accepts 1 to 4 tokens a step.
MODES: dict[str, tuple[Plan, tuple[int, int, int]]] = {
    "chain": (TINY, (3, 1, 4)),
    "some-rejected": (TINY_HALF, (3, 1, 4)),
    "tree": (TINY_HALF, (3, 4, 10)),
    "one-step": (TINY, (1, 1, 2)),
    "two-steps": (TINY, (2, 1, 3)),
    "wide-tree": (TINY, (4, 8, 24)),
    "adaptive": (TINY_HALF, (3, 1, 4)),
}
# By running requests: a batch goes through all of these as its requests end.
ADAPTIVE = {
    "1": {"candidate_steps": [3]},
    "3": {"candidate_steps": [1]},
    "5": {"candidate_steps": [0]},
    "9": {"candidate_steps": [2]},
}
# Left to the full suite for their time; the tree has a draft with rejections as well.
SLOW = ("some-rejected", "one-step", "two-steps", "wide-tree", "adaptive")


def adaptive_flags(folder: Path) -> tuple[str, ...]:
    """Step counts by `ADAPTIVE`, from a file in `folder`."""
    config = folder / "steps.json"
    config.write_text(json.dumps(ADAPTIVE))
    return ("--speculative-adaptive", "--speculative-adaptive-config", str(config))


def launch(pairs: dict[Plan, Pair], mode: str, *more: str) -> Launch:
    plan, numbers = MODES[mode]
    pair = pairs[plan]
    flags = (*PLAIN, "--skip-speculative-self-test", *more)
    return Launch(pair.target, Speculation(pair.draft, *numbers), "float32", flags)


# Upstream's own test mode; the environment variables for it were read when the zygote started.
RETRACTING = """
from sglang.srt.managers import scheduler
scheduler.TEST_RETRACT, scheduler.TEST_RETRACT_INTERVAL = True, 4
"""


@contextmanager
def retracting(servers: ServerPool, launch: Launch, program: Path) -> Iterator[Client]:
    """A server that retracts some request every few steps; `program` is written."""
    assert servers.zygote is not None
    spawn = tampered.spawner(servers.zygote, program, RETRACTING)
    with Server(launch, servers.log("retracting"), spawn=spawn) as server:
        yield Client(server.wait_ready().url)


def both(plain: Client, spec: Client, asks: Sequence[Ask]) -> list[Reply]:
    return same_answers.both(plain, spec, asks, same_answers.TINY_TOLERANCE)


def asks_of(*sampling: dict[str, Any], **common: Any) -> list[Ask]:
    base = {"max_new_tokens": 40, "ignore_eos": True}
    return [Ask(PROMPT, {**base, **one}, **common) for one in sampling]
