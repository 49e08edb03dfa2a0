"""Conversations of several turns, many at once: how much of each prompt the prefix cache still has.

Every stream has an opening of its own; each turn's prompt is all that was said before and a few new
tokens. The turns go round: each stream's first, then each one's second, so between two turns of one
stream all others are served, and a pool that is a little too small forgets what is needed next.
No torch; the tokens are drawn from a seed.

Called by: `benchmark/kv.py`, `test/cpu/test_kv.py`.
"""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ..client import Answer, Client

PATIENCE = 120.0  # seconds for one turn


@dataclass(frozen=True)
class Plan:
    """What is said.

    Attributes:
        streams: conversations; turns: of each.
        opening: tokens of the first prompt, `begin` included.
        said: tokens that each later turn adds; a third more or less, drawn.
        answered: tokens of an answer; a third more or less, drawn, so that it may end within the
            accepted tokens of a verify.
        at_once: requests in flight.
        ids: range of the token ids that are drawn.
        begin: what each prompt begins with.
    """

    streams: int = 64
    turns: int = 5
    opening: int = 64
    said: int = 16
    answered: int = 24
    at_once: int = 16
    ids: tuple[int, int] = (64, 319)
    begin: tuple[int, ...] = (0,)
    seed: int = 1

    @property
    def tokens(self) -> int:
        """Of all streams at their end, on average: what a pool has to hold to forget nothing."""
        return self.streams * (
            self.opening + self.turns * self.answered + (self.turns - 1) * self.said
        )


@dataclass(frozen=True)
class Turn:
    """One request and its answer."""

    stream: int
    turn: int
    prompt: tuple[int, ...]
    answer: Answer

    @property
    def cached(self) -> int:
        """Tokens of the prompt that were not prefilled."""
        return int(self.answer.meta["cached_tokens"])

    @property
    def accept_length(self) -> float:
        """Tokens a verify gave, on average; 0 where there was none."""
        histogram = self.answer.correct_drafts
        cycles = sum(histogram)
        return sum(n * (i + 1) for i, n in enumerate(histogram)) / cycles if cycles else 0.0


def reuse(turns: Sequence[Turn]) -> float:
    """Share of the prompts' tokens that came from the cache, first turns left out."""
    later = [turn for turn in turns if turn.turn]
    return sum(turn.cached for turn in later) / sum(len(turn.prompt) for turn in later)


def _await(before: threading.Event, stream: int, turn: int, errors: Sequence[object]) -> None:
    """Wait for the answer of the turn before, without which this one has no history.

    Raises:
        TimeoutError: it did not come, and no request failed that would say why.
    """
    if not before.wait(timeout=PATIENCE) and not errors:
        raise TimeoutError(
            f"stream {stream}: turn {turn - 1} had no answer within {PATIENCE:g} s, so turn {turn} "
            "has no history to go on from"
        )


def play(url: str, plan: Plan) -> list[Turn]:
    """All turns of all streams, in the order (turn, stream); raises what a request raised.

    Greedy, so two servers that are right are asked the same.
    """
    drawn = random.Random(plan.seed)

    def about(count: int) -> int:
        return drawn.randint(count - count // 3, count + count // 3)

    def words(count: int) -> list[int]:
        return [drawn.randint(*plan.ids) for _ in range(count)]

    openings = [[*plan.begin, *words(plan.opening - len(plan.begin))] for _ in range(plan.streams)]
    todo: queue.SimpleQueue[tuple[int, int, list[int], int]] = queue.SimpleQueue()
    for turn in range(plan.turns):
        for stream in range(plan.streams):
            new = openings[stream] if turn == 0 else words(about(plan.said))
            todo.put((turn, stream, new, about(plan.answered)))
    so_far: list[list[int]] = [[] for _ in range(plan.streams)]
    # A turn may be taken up before the one before it has its answer.
    answered = [[threading.Event() for _ in range(plan.turns)] for _ in range(plan.streams)]
    done: list[Turn] = []
    errors: list[BaseException] = []

    def work() -> None:
        client = Client(url)
        try:
            while not errors:
                turn, stream, new, count = todo.get_nowait()
                if turn:
                    _await(answered[stream][turn - 1], stream, turn, errors)
                prompt = [*so_far[stream], *new]
                answer = client.generate(prompt, count)
                so_far[stream] = [*prompt, *answer.tokens]
                done.append(Turn(stream, turn, tuple(prompt), answer))
                answered[stream][turn].set()
        except queue.Empty:
            pass  # nothing left to ask
        except BaseException as error:
            errors.append(error)
            raise
        finally:
            client.close()

    threads = [threading.Thread(target=work) for _ in range(plan.at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sorted(done, key=lambda turn: (turn.turn, turn.stream))
