"""Prompts of known, exact length from text that the draft never saw.

Random tokens are no text: a draft's guesses on them, and the target's own answers, say nothing of
real traffic. So acceptance is
measured on text only. The tiny pair is the exception by construction: any sequence of its ordinary
tokens is its text.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..capture.prompts import PromptError, read_prompts
from ..models import held_out
from ..models.tiny.plan import BOS, SPECIALS, VOCABULARY

LONG_ANSWER = 96  # tokens
FEWEST_ROWS = 4  # fewer would make the requests of a batch near copies of each other


class CorpusError(ValueError):
    """There is no text to prompt with; the text says what to give."""


@dataclass(frozen=True)
class Corpus:
    """Token ids of texts; `source` says where they are from.

    A prompt ends with the end of a text, so that what is generated continues a whole chat turn or
    document; what stands before it are other texts, cut at the front to the length.
    """

    rows: tuple[tuple[int, ...], ...]
    source: str
    first: int | None = None

    def prompts(self, count: int, length: int, seed: int) -> list[list[int]]:
        """`count` prompts of exactly `length` tokens; prompt i of a seed and length is one text."""
        return [self._prompt(number, length, seed) for number in range(count)]

    def _prompt(self, number: int, length: int, seed: int) -> list[int]:
        dice = random.Random(f"{seed} {length} {number}")
        ids = list(self.rows[(seed + number) % len(self.rows)])
        while len(ids) < length:
            ids = [*self.rows[dice.randrange(len(self.rows))], *ids]
        ids = ids[-length:]
        if self.first is not None:
            ids[0] = self.first
        return ids

    @property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(self.rows).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """For the provenance of a run."""
        return {"source": self.source, "texts": len(self.rows), "sha256": self.sha256}


def of_embedded() -> Corpus:
    """The held-out prompts beside the embedded draft that are answered at length.

    After the end of a short answer there is no text to predict, and acceptance would be that of
    junk. The kinds are mixed, so that a few requests have some of each.
    """
    entries = [json.loads(line) for line in held_out().read_text().splitlines()]
    rows = [tuple(e["prompt_ids"]) for e in entries if len(e["greedy_answer_ids"]) >= LONG_ANSWER]
    random.Random(0).shuffle(rows)
    return Corpus(tuple(rows), "held_out.jsonl of the embedded draft")


def of_tiny() -> Corpus:
    """Ordinary tokens of the tiny pair after its `<bos>`, which has to open a context."""
    dice = random.Random(0)
    rows = [tuple(dice.randrange(SPECIALS, VOCABULARY) for _ in range(48)) for _ in range(64)]
    return Corpus(tuple(rows), "ordinary tokens of the tiny pair, its text by construction", BOS)


def of_file(path: Path, model: Path) -> Corpus:
    """The texts of a JSONL file: `text`, `messages`, `input_ids` or `prompt_ids` a line.

    Raises:
        CorpusError: it has no text, or too few.
    """
    try:
        rows = [prompt.input_ids for prompt in read_prompts(path, model)]
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}: {error}; write the prompts as UTF-8") from error
    except (OSError, PromptError) as error:
        raise CorpusError(str(error)) from error
    return checked(rows, str(path))


def checked(rows: Sequence[Sequence[int]], source: str) -> Corpus:
    """`rows` as a corpus; CorpusError for too few different ones, or for random ids.

    Of ids drawn at random from a large vocabulary nearly all occur once; of text, the commonest
    make up a good part. Judged over 2,000 ids or more, where the two are far apart.
    """
    different = tuple(dict.fromkeys(tuple(row) for row in rows))
    if len(different) < FEWEST_ROWS:
        raise CorpusError(f"{source}: {len(different)} different texts, expected {FEWEST_ROWS}")
    ids = [token for row in different for token in row]
    if len(ids) >= 2000 and max(ids) >= 10_000 and len(set(ids)) > 0.8 * len(ids):
        raise CorpusError(
            f"{source}: {len(set(ids)) / len(ids):.0%} of its tokens occur once, as random ids do; "
            "acceptance on random ids misleads, so give held-out text of your traffic"
        )
    return Corpus(different, source)
