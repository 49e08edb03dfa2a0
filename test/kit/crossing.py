"""A server that crosses its batch threshold as planned, and what must hold when it does.

On the tiny pair a draft KV row that was never written, or written with the wrong states, lowers
the accept counts, which are otherwise all full; tokens are the oracle's or a fault is in them.
`kit.threshold_probe` says what else than the flags can decide.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sglang_spec.client import Answer, Client
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.server import Launch

from .faulty_server import FaultyServer
from .servers import ServerPool

PROBE = Path(__file__).with_name("threshold_probe.py")
ORACLE = Oracle(TINY)
COUNTED = ("batches_off", "batches_on", "switches", "catch_ups", "catch_ups_kv_only")
STEPS = 3
CAPACITY = 16  # tokens that the draft may be behind
FLAGS = (
    *("--speculative-disable-batch-threshold", "3"),
    *("--speculative-enable-batch-threshold", "2"),
    *("--speculative-threshold-dwell", "2"),
)


class Crossing:
    """A server whose decisions can be planned."""

    def __init__(self, server: FaultyServer, kv: Path) -> None:
        self.server = server.server
        self.client = server.client
        self.kv = kv
        self._plant = server.plant
        self._plans = 0

    def plan(self, words: str) -> None:
        """Have this decide from now on; a plan begins anew each time. No request may run."""
        self._plans += 1
        self._plant(f"{words} #{self._plans}" if words else "")

    def info(self) -> dict[str, Any]:
        """The threshold's state as `/server_info` has it."""
        reply = self.client.get("/server_info").json()
        state: dict[str, Any] = reply["internal_states"][0]["batch_threshold"]
        return state

    def draft_kv(self, rid: str, rank: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """Keys and values of the draft, (tokens, heads, head size), as the request left them."""
        with np.load(self.kv / f"{rid}.{rank}.npz") as file:
            return {name: file[name] for name in ("k", "v")}


@contextmanager
def crossing(servers: ServerPool, launch: Launch, folder: Path) -> Iterator[Crossing]:
    """Serve `launch`, which has the threshold's flags, until the block ends."""
    environment = {**launch.environment, "SPEC_TEST_KV": str(folder)}
    launch = dataclasses.replace(launch, environment=environment)
    name = f"threshold-{folder.name}"
    with FaultyServer(servers, launch, folder / "plan", name, PROBE) as server:
        yield Crossing(server, folder)


def prompt(seed: int, length: int) -> list[int]:
    return [0, *random.Random(seed).choices(range(64, 320), k=length)]


def requests(
    client: Client, prompts: Sequence[list[int]], lengths: Sequence[int], **fields: Any
) -> list[Answer]:
    """One request a prompt, all sent together, of these many new tokens each."""
    reply = client.post(
        "/generate",
        input_ids=list(prompts),
        sampling_params=[
            {"temperature": 0, "ignore_eos": True, "max_new_tokens": length} for length in lengths
        ],
        **fields,
    )
    reply.raise_for_status()
    answers = []
    for body in reply.json():
        meta = body["meta_info"]
        counts = tuple(meta.get("spec_correct_drafts_histogram", ()))
        tokens = tuple(body["output_ids"])
        answers.append(Answer(tokens, "", 0.0, meta.get("spec_verify_ct", 0), counts, "", meta))
    return answers


def check_tokens(prompts: Sequence[list[int]], answers: Sequence[Answer]) -> None:
    for tokens, answer in zip(prompts, answers, strict=True):
        assert list(answer.tokens) == ORACLE.greedy(tokens, len(answer.tokens))


def check_all_accepted(answers: Sequence[Answer]) -> None:
    """Every cycle accepted every draft: the draft's KV has no hole and no wrong row."""
    for answer in answers:
        assert sum(answer.correct_drafts[:STEPS]) == 0, answer.correct_drafts
        assert sum(answer.correct_drafts) == answer.cycles


def check_random_arrivals(
    server: Crossing, seed: int, count: int = 24, longest: int = 60, aborts: bool = True
) -> list[Answer]:
    """Requests come at random, some on a finished one's text, some are aborted; all is exact."""
    dice = random.Random(seed)
    asked = [prompt(seed * 1000 + n, dice.randrange(3, 150)) for n in range(count)]
    lengths = [dice.randrange(1, longest) for _ in range(count)]
    delays = [dice.random() * 0.05 for _ in range(count)]

    def ask(number: int) -> list[tuple[list[int], Answer]]:
        client = Client(server.server.url)
        tokens, length = asked[number], lengths[number]
        if aborts and number % 6 == 5:
            rid = f"abort-{seed}-{number}"
            timer = threading.Timer(0.1, lambda: client.post("/abort_request", rid=rid))
            timer.start()
            (answer,) = requests(client, [tokens], [400], rid=[rid])
            timer.join()
            done = [(tokens, answer)]
        else:
            (answer,) = requests(client, [tokens], [length])
            done = [(tokens, answer)]
            if number % 3 == 0:  # a second turn on the text so far
                longer = [*tokens, *answer.tokens, 99, 100 + number]
                done.append((longer, requests(client, [longer], [length])[0]))
        client.close()
        return done

    with ThreadPoolExecutor(8) as pool:
        futures = []
        for number in range(count):
            futures.append(pool.submit(ask, number))
            time.sleep(delays[number])
        pairs = [pair for future in futures for pair in future.result()]
    check_tokens([tokens for tokens, _ in pairs], [answer for _, answer in pairs])
    check_all_accepted([answer for _, answer in pairs])
    return [answer for _, answer in pairs]


def check_arrivals_until(
    server: Crossing, seed: int, enough: Callable[[dict[str, int]], bool], **options: Any
) -> None:
    """Random arrivals, and more of them until what was counted since the first is `enough`.

    How many requests meet in a batch, and so how many batches there are, is a matter of the host's
    other work too.
    """
    before = server.info()
    for turn in range(20):
        check_random_arrivals(server, seed + 100 * turn, **options)
        after = server.info()
        if enough({name: after[name] - before[name] for name in COUNTED}):
            return
    raise AssertionError(f"not enough of these in 20 turns: {before}, later {after}")


def check_return(server: Crossing) -> tuple[dict[str, int], list[Answer]]:
    """Four requests, then fewer and fewer: off at once, on again from two, then all accepted.

    Returns what was counted meanwhile, and the answers.
    """
    server.plan("")
    prompts = [prompt(seed, 20 + 7 * seed) for seed in range(4)]
    before = server.info()
    answers = requests(server.client, prompts, [6, 30, 61, 90])
    after = server.info()
    check_tokens(prompts, answers)
    check_all_accepted(answers)
    assert [answer.cycles > 0 for answer in answers] == [False, False, True, True]
    assert after["speculating"]
    counted = {name: after[name] - before[name] for name in COUNTED}
    del counted["batches_on"]
    return counted, answers


def check_draft_kv(server: Crossing, plan: str, tolerance: float = 0.0, count: int = 1) -> None:
    """The draft's KV after the plan is that of a run that was never off.

    Of `count` requests sent together. `tolerance` is a share of the largest element.
    """
    prompts = [prompt(7 + 2 * number, 33 + number) for number in range(count)]
    rows, answers = {}, {}
    for words in ("on", plan):
        server.client.flush_cache()
        # Other text in the same slots: a row that is never written must not be right by chance.
        server.plan("on")
        requests(server.client, [prompt(8, 33)], [80])
        server.client.flush_cache()
        server.plan(words)
        rids = [f"kv-{words.replace(' ', '-')}-{number}" for number in range(count)]
        answers[words] = requests(server.client, prompts, [70] * count, rid=rids)
        rows[words] = [server.draft_kv(rid) for rid in rids]
    for number, (expected, found) in enumerate(zip(rows["on"], rows[plan], strict=True)):
        length = min(len(expected["k"]), len(found["k"]))
        # Thrown coins may end with speculation off, and the draft behind.
        unseen = CAPACITY + 1 if plan.startswith("coin") else 0
        assert length >= len(prompts[number]) + 68 - unseen
        for name in ("k", "v"):
            right = expected[name][:length]
            atol = tolerance * float(np.abs(right).max())
            message = f"draft {name} of request {number}"
            np.testing.assert_allclose(
                found[name][:length], right, rtol=0, atol=atol, err_msg=message
            )
    for found_answers in answers.values():
        check_tokens(prompts, found_answers)
        check_all_accepted(found_answers)


def check_prefix(server: Crossing, new: int, page: int = 1) -> None:
    """What the radix cache keeps of text generated while off has draft KV, and little is lost."""
    tokens = prompt(11, 40)
    server.client.flush_cache()
    server.plan("off 1000")
    (first,) = requests(server.client, [tokens], [new])
    server.plan("on")
    longer = [*tokens, *first.tokens, 99]
    (second,) = requests(server.client, [longer], [40])
    check_tokens([tokens, longer], [first, second])
    check_all_accepted([second])
    cached = second.meta["cached_tokens"]
    most = len(tokens) + new - 1  # the last token has no KV yet
    assert max(len(tokens) - 2, most - CAPACITY - 2) - page < cached <= most
