"""Fill a small KV pool, evict to the host, ask again: shared by the tests on the CPU and a GPU."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sglang_spec import host
from sglang_spec.client import Answer, Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny.plan import BOS, SPECIALS, VOCABULARY
from sglang_spec.server import Launch, Server, Spawn, Speculation

POOL = 4096  # tokens on the device
PROMPT = 600  # tokens; all of PROMPTS and an answer fit the pool
PROMPTS = 3
FILLERS = 9  # more than the pool holds, less than the host's
STEPS = 3
CYCLES = 12
NEW = 1 + CYCLES * (STEPS + 1)


@contextmanager
def serving(pair: Pair, log: Path, spawn: Spawn, more: Sequence[str] = ()) -> Iterator[Client]:
    arguments = (
        *("--skip-server-warmup", "--enable-hierarchical-cache", "--hicache-ratio", "6"),
        *("--hicache-write-policy", "write_through", "--max-total-tokens", str(POOL)),
        *("--enable-cache-report", *more),
    )
    if host.device() == "cpu":
        copies = ("--hicache-io-backend", "direct", "--hicache-mem-layout", "layer_first")
        arguments += copies
    launch = Launch(pair.target, Speculation(pair.draft, STEPS), arguments=arguments)
    with Server(launch, log, spawn=spawn) as server:
        server.wait_ready()
        client = Client(server.url)
        try:
            yield client
        finally:
            client.close()


def evicted_and_loaded_back(client: Client) -> tuple[list[Answer], list[Answer]]:
    """Answers from prefixes that lie on the device, and the same from what came from the host."""
    rng = random.Random(11)
    known, fillers = (
        [[BOS, *(rng.randrange(SPECIALS, VOCABULARY) for _ in range(PROMPT))] for _ in range(count)]
        for count in (PROMPTS, FILLERS)
    )
    for prompt in known:
        client.generate(prompt, NEW, ignore_eos=True)
    before = [client.generate(prompt, NEW, ignore_eos=True) for prompt in known]
    for prompt in fillers:
        client.generate(prompt, 2, ignore_eos=True)
    after = [client.generate(prompt, NEW, ignore_eos=True) for prompt in known]
    for where, answers in (("device", before), ("host", after)):
        for one in answers:
            found = one.meta["cached_tokens_details"]
            assert found[where] >= PROMPT // 2, f"not from the {where}: {found}"
    return before, after


def accept_length(answers: Sequence[Answer]) -> float:
    """Over all of them, the bonus token included."""
    return sum(len(one.tokens) - 1 for one in answers) / sum(one.cycles for one in answers)
