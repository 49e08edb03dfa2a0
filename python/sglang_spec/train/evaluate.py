"""How long a draft is accepted: greedy acceptance on held-out prompts, replayed exactly.

One pass of the target and of the unrolled draft over each prompt and its greedy answer; then
`replay` counts cycles. In float32 the counts are those of a real server, cycle by cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .data import grouped, pad
from .heldout import Row
from .model import Draft
from .replay import Acceptance, pool, replay
from .target import Target

BEGIN = 64  # tokens of an answer's beginning, before most loops


@dataclass(frozen=True)
class Prepared:
    """Held-out sequences with the target's states, kept while a draft is trained.

    Attributes:
        numbers: rows of the held-out list, in order of the batch.
    """

    numbers: tuple[int, ...]
    ids: torch.Tensor
    states: torch.Tensor


def prepare(
    target: Target, rows: Sequence[Row], layers: Sequence[int], batch_tokens: int = 4096
) -> Iterator[Prepared]:
    """Batches of all rows, with the outputs of `layers` in the order given."""
    for numbers in grouped([len(row.tokens) for row in rows], batch_tokens, 0):
        ids = pad([rows[number].tokens for number in numbers]).to(target.device)
        states, _ = target.states(ids, layers)
        yield Prepared(tuple(numbers), ids, states)


@torch.no_grad()
def guesses(
    draft: Draft, embedding: torch.Tensor, part: Prepared, steps: int
) -> list[list[list[int]]]:
    """[batch][steps][length] target ids that each step drafts, for a cycle at every position."""
    chains = draft.unroll(embedding, part.ids, part.states, steps)
    drafted = [draft.tokens[draft.logits(state).argmax(-1)] for state in chains]
    made: list[list[list[int]]] = torch.stack(drafted, 1).tolist()
    return made


def counts(
    draft: Draft,
    embedding: torch.Tensor,
    rows: Sequence[Row],
    prepared: Sequence[Prepared] | Iterator[Prepared],
    steps: int,
    begin: int | None = None,
) -> list[Acceptance]:
    """The cycles of every row, in its order; with `begin` only those of its first tokens."""
    found = [Acceptance()] * len(rows)
    for part in prepared:
        for number, guessed in zip(
            part.numbers, guesses(draft, embedding, part, steps), strict=True
        ):
            row = rows[number]
            tokens = row.tokens[: len(row.prompt) + begin] if begin else row.tokens
            found[number] = replay(len(row.prompt), tokens, guessed)
    return found


def summary(rows: Sequence[Row], found: Sequence[Acceptance]) -> dict[str, Any]:
    """All rows pooled, those that do not loop, and every category."""
    pairs = list(zip(rows, found, strict=True))
    kinds = {row.kind: None for row in rows}
    return {
        "all": pool(one for _, one in pairs).to_json(),
        "without_loops": pool(one for row, one in pairs if not row.loops).to_json(),
        "looping_answers": sum(row.loops for row in rows),
        "answers": len(rows),
        "kinds": {kind: pool(a for r, a in pairs if r.kind == kind).to_json() for kind in kinds},
    }


def captures(layers: Sequence[int], total: int) -> dict[str, list[int]]:
    """Layers that a server could hand over by mistake, by what went wrong; -1 is the embedding.

    Args:
        layers: the right ones.
        total: layers of the target. A capture that would lie beyond the last one is left out.
    """
    right = list(layers)
    wrong = {
        "one layer later": [layer + 1 for layer in right],
        "one layer earlier": [layer - 1 for layer in right],
        "default layers": [1, total // 2 - 1, total - 4],
        "embedding first": [-1, *right[1:]],
        "first two swapped": [right[1], right[0], *right[2:]] if len(right) > 1 else right,
        "reversed": right[::-1],
    }
    fits = {name: one for name, one in wrong.items() if min(one) >= -1 and max(one) < total}
    return {name: one for name, one in fits.items() if len(one) == len(right) and one != right}


def evaluate(
    target: Target,
    draft: Draft,
    rows: Sequence[Row],
    layers: Sequence[int],
    steps: int = 3,
    wrong: bool = False,
    batch_tokens: int = 4096,
) -> dict[str, Any]:
    """The whole report of one draft; with `wrong` also for every wrong capture."""
    prepared = list(prepare(target, rows, layers, batch_tokens))
    embedding = target.embedding
    found = counts(draft, embedding, rows, prepared, steps)
    beginning = counts(draft, embedding, rows, prepared, steps, BEGIN)
    report = {"num_steps": steps, "layers": list(layers), **summary(rows, found)}
    report[f"first_{BEGIN}_tokens"] = pool(beginning).to_json()
    if wrong:
        others = captures(layers, target.shape.layers)
        report["wrong_captures"] = {
            name: {
                "layers": other,
                **pool(
                    counts(
                        draft, embedding, rows, prepare(target, rows, other, batch_tokens), steps
                    )
                ).to_json(),
            }
            for name, other in others.items()
        }
    return report
