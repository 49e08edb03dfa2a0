"""Decode batches run to be timed: so many requests of such a context, on and off by a script.

Through the scheduler's own event loop, as the self-test runs its requests. The context is not
prefilled: KV slots are put into the prefix cache as they are, since what a step costs does not
depend on what they hold.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sglang.srt.managers.schedule_batch import FINISH_LENGTH
from sglang.srt.mem_cache.base_prefix_cache import InsertParams
from sglang.srt.mem_cache.radix_cache import RadixKey

from ..self_test import plan, quiet
from ..self_test.drive import Driver
from .cells import Lap
from .pending import CAPACITY
from .stopwatch import Stopwatch

WARM = 2
CYCLES = 8
# Long enough for the draft to catch up twice while off.
STEPS = 2 * CAPACITY + 4
SUFFIX = 2  # tokens of a prompt that are prefilled


class Script:
    """In place of the decider: on for some batches, then off; batches of other sizes are let be."""

    reason = "the costs of a step are measured"

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.decisions: list[bool] = []

    def decide(self, rows: int, tokens: int | None = None) -> bool:
        if rows != self._rows:
            return True
        self.decisions.append(len(self.decisions) < WARM + CYCLES + 1)
        return self.decisions[-1]

    def observe(self, correct_drafts: list[int]) -> None:
        """Acceptance on made-up context says nothing."""

    @property
    def is_done(self) -> bool:
        return len(self.decisions) > WARM + CYCLES + STEPS


class Rehearsal(Driver):
    """Runs the script of one cell and ends the requests when it is done."""

    def __init__(self, scheduler: Any, script: Script, watch: Stopwatch) -> None:
        super().__init__(scheduler)
        self._script = script
        self._stopwatch = watch
        self.laps: list[Lap] = []

    def _ingest(self, stop_at_pause: bool = False) -> list[Any]:
        if self._script.is_done:
            for req in self._seen.values():
                if not req.finished():
                    req.to_finish = FINISH_LENGTH(length=len(req.output_ids))
        return super()._ingest(stop_at_pause)

    def _watch(self, forward: Any) -> Any:
        """Note each decode batch of the script as a lap."""

        def watched(batch: Any, *args: Any, **kwargs: Any) -> Any:
            known = len(self._script.decisions)
            self.laps.append(Lap(True, self._stopwatch.mark()))
            result = forward(batch, *args, **kwargs)
            if len(self._script.decisions) == known:  # a prefill, or not all rows together
                self.laps.pop()
            else:
                self.laps[-1].on = self._script.decisions[-1]
            return result

        return watched

    def lap(self) -> Lap | None:
        return self.laps[-1] if self.laps else None


def rehearse(scheduler: Any, rows: int, context: int, watch: Stopwatch) -> list[Lap]:
    """The laps of `rows` requests of about `context` tokens, in order; the cache is flushed."""
    script = Script(rows)
    rehearsal = Rehearsal(scheduler, script, watch)
    prompts = _prompts(scheduler, rows, context)
    if not scheduler.disable_radix_cache:
        _pretend_cached(scheduler, prompts)
    most = (WARM + CYCLES + 4) * scheduler.draft_worker.speculative_num_draft_tokens + STEPS
    sampling = {"max_new_tokens": most, "ignore_eos": True}
    with _wrapped(scheduler.draft_worker, script, rehearsal, watch):
        rehearsal.run(
            [
                plan.request(scheduler, f"threshold {rows} x {context} {row}", prompt, sampling)
                for row, prompt in enumerate(prompts)
            ]
        )
    quiet.flush(scheduler)
    watch.wait()
    return rehearsal.laps


def growth(num_draft_tokens: int) -> int:
    """Tokens by which a request of a rehearsal grows at the most, what is reserved included."""
    return (WARM + CYCLES + 8) * num_draft_tokens + STEPS + 2 * CAPACITY


@contextmanager
def _wrapped(worker: Any, script: Script, rehearsal: Rehearsal, watch: Stopwatch) -> Iterator[None]:
    threshold, draft = worker.threshold, worker.draft_worker
    places = (
        (draft, "draft", "draft"),
        (worker, "verify", "verify"),
        (draft, "_draft_extend_for_decode", "draft_extend"),
        (threshold, "_plain", "decode"),
        (threshold, "_catch_up", "catch_up"),
    )
    decider, threshold.decider = threshold.decider, script
    for owner, name, part in places:
        setattr(owner, name, watch.around(getattr(owner, name), part, rehearsal.lap))
    try:
        yield
    finally:
        threshold.decider = decider
        for owner, name, _ in places:
            delattr(owner, name)


def _prompts(scheduler: Any, rows: int, context: int) -> list[tuple[int, ...]]:
    """Prompts that have no common beginning, away from the special tokens."""
    vocabulary = scheduler.model_config.vocab_size
    first, span = min(200, vocabulary // 4), max(vocabulary - 300, vocabulary // 4)
    return [
        tuple(first + (row + 37 * column) % span for column in range(context + SUFFIX))
        for row in range(rows)
    ]


def _pretend_cached(scheduler: Any, prompts: list[tuple[int, ...]]) -> None:
    """Give the prefix cache KV slots for all but the end of each prompt, in whole pages.

    With EAGLE the cache goes by pairs of tokens: n pairs are n + 1 tokens and n slots.
    """
    page = int(scheduler.page_size)
    for prompt in prompts:
        count = (len(prompt) - SUFFIX) // page * page
        if count:
            slots = scheduler.token_to_kv_pool_allocator.alloc(count)
            key = RadixKey(array("q", prompt[: count + 1]), is_bigram=True)
            scheduler.tree_cache.insert(InsertParams(key=key, value=slots))
