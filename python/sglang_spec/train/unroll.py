"""The loss: every draft step of a chain against the target's distribution there.

A draft that is only trained on the target's states accepts 8 % at the second position: at run time
it is given its own output. So its steps are unrolled, each on the output of the one before, over
the keys that an engine's cache would hold (`model`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .cross_entropy import cross_entropy
from .data import Batch, moved
from .model import Draft
from .recipe import Fit

_ROWS = 8192  # rows of the target's logits at a time; the whole vocabulary is wide


@dataclass(frozen=True)
class Wanted:
    """What the draft has to say at the learned positions.

    Attributes:
        row, place: [n], where: the target's state there decides the token at place + 1.
        chance: [n, draft vocabulary], the target's distribution over the draft's tokens; zeros
            where its best token is none of them: nothing is learned there.
        best: [n], the row of `lm_head` of its best token, or -1.
    """

    row: torch.Tensor
    place: torch.Tensor
    chance: torch.Tensor
    best: torch.Tensor


@torch.no_grad()
def wanted(batch: Batch, head: torch.Tensor, tokens: torch.Tensor, unroll: int) -> Wanted:
    """The learned positions that a chain of `unroll` steps can reach.

    How many there are is known on the host, so that it never waits for the device: it would then
    start the next step's kernels one by one on a device that has nothing else to do.

    Args:
        head: the target's, [vocabulary, hidden].
        tokens: target ids of the draft's vocabulary.
    """
    learn = batch.learn.clone()
    learn[:, : unroll + 1] = False
    row, place = (moved(one, head.device) for one in learn.nonzero(as_tuple=True))
    slot = torch.full((len(head),), -1, dtype=torch.long, device=head.device)
    slot[tokens] = torch.arange(len(tokens), device=head.device)
    last = batch.last[row, place].to(head.dtype)
    chance = torch.empty(len(row), len(tokens), device=head.device)
    best = torch.empty_like(row)
    for start in range(0, len(row), _ROWS):
        part = slice(start, start + _ROWS)
        logits = F.linear(last[part], head)
        best[part] = slot[logits.argmax(-1)]
        chance[part] = logits[:, tokens].float().softmax(-1) * (best[part] >= 0)[:, None]
    return Wanted(row, place, chance, best)


def loss(
    draft: Draft, embedding: torch.Tensor, batch: Batch, want: Wanted, fit: Fit
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted sum over steps of the mean cross entropy, and right drafts of each step.

    Returns:
        The loss, and [unroll] counts of positions whose best draft is the target's best token.
    """
    total = torch.zeros((), device=want.best.device)
    right = torch.zeros(fit.unroll, dtype=torch.long, device=want.best.device)
    chains = draft.unroll(embedding, batch.ids, batch.states, fit.unroll)
    for step, state in enumerate(chains):
        # Step k of the chain that starts at t is about the token at t + 2 + k.
        logits = draft.logits(state[want.row, want.place - 1 - step])
        total = total + fit.decay**step * cross_entropy(logits, want.chance, fit.compile)
        right[step] = (logits.detach().argmax(-1) == want.best).sum()
    return total, right
