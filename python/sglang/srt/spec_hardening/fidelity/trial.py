"""The kernels and the torch code, on the same drawn steps: do they give the same bits?

Tried on the GPU before a rank is ready, and by the tests with many more cases.
"""

from __future__ import annotations

import copy
import random
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.spec_hardening.fidelity.by_torch import TorchStep
from sglang.srt.spec_hardening.fidelity.fields import Fields
from sglang.srt.spec_hardening.fidelity.ledger import Entry, Ledger
from sglang.srt.spec_hardening.fidelity.lines import Lines
from sglang.srt.spec_hardening.fidelity.plan import Plan

ASKED = (
    Fields(frequency=0.7, presence=-0.3, repetition=1.3, min_new_tokens=9, stop_tokens=(2, 5)),
    Fields(repetition=0.85),
    Fields(min_new_tokens=400, stop_tokens=(3,)),
    Fields(frequency=-0.45, presence=1.1),
    Fields(presence=0.2, repetition=1.9, min_new_tokens=4, stop_tokens=(1, 6, 7)),
)


@dataclass(frozen=True)
class Case:
    """A batch that takes some steps.

    Attributes:
        asked: fields of the requests; None: one that has none.
        nodes: of a window.
        is_tree: drawn trees, else chains.
        before: tokens that each request has put out already.
        few: different tokens that are put out or drafted; few are many duplicates.
        padding: columns of a logits row behind the vocabulary.
        is_apart: the lines of the batch do not follow each other.
    """

    asked: tuple[Fields | None, ...] = (*ASKED, None)
    nodes: int = 4
    is_tree: bool = False
    vocabulary: int = 3001
    before: int = 40
    few: int = 30
    padding: int = 7
    is_apart: bool = False
    dtype: torch.dtype = torch.float32
    steps: int = 3
    seed: int = 1


CASES = (Case(), Case(nodes=7, is_tree=True, vocabulary=1023), Case(nodes=1, before=0))


class _Asking:
    """What the ledger reads of a `Req`."""

    def __init__(self, output: Sequence[int]) -> None:
        self.origin_input_ids = array("q", [1])
        self.output_ids = array("q", output)
        self.kv = SimpleNamespace(kv_committed_len=len(output))


class _Trees:
    """Drawn windows of a batch; parents come before their children."""

    def __init__(self, case: Case, roots: Sequence[int], dice: random.Random, device: Any) -> None:
        nodes = case.nodes
        self.draft_token_num = nodes
        self.tree_topk = -1 if case.is_tree else 1
        self.max_tree_depth = nodes
        links = [[[-1] * nodes for _ in roots] for _ in range(2)]
        self.ways: list[list[int]] = []  # nodes that are accepted
        for row in range(len(roots)):
            last: dict[int, int] = {}
            parents = [dice.randrange(n) if case.is_tree else n - 1 for n in range(1, nodes)]
            for node, parent in enumerate(parents, start=1):
                which, place = (1, last[parent]) if parent in last else (0, parent)
                links[which][row][place] = last[parent] = node
            way = [0]
            while (here := links[0][row][way[-1]]) > 0 and dice.random() < 0.7:
                way.append(here)
            self.ways.append(way)
        self.tokens = [
            [root, *(dice.randrange(case.few) for _ in range(1, nodes))] for root in roots
        ]
        self.draft_token = torch.tensor(self.tokens, device=device).view(-1)
        self.retrieve_next_token = torch.tensor(links[0], device=device)
        self.retrieve_next_sibling = torch.tensor(links[1], device=device)
        index = [
            [row * nodes + node for node in way] + [-1] * (nodes - len(way))
            for row, way in enumerate(self.ways)
        ]
        self.accept_index = torch.tensor(index, dtype=torch.int32, device=device)
        self.accept_lens = torch.tensor(
            [len(way) for way in self.ways], dtype=torch.int32, device=device
        )


def differences(made: Callable[..., Any], device: torch.device, cases: Any = CASES) -> list[str]:
    """Where steps that `made` makes give other logits or counts than `TorchStep`'s; best none."""
    return [text for case in cases for text in _differences(made, device, case)]


def _differences(made: Callable[..., Any], device: torch.device, case: Case) -> list[str]:
    dice = random.Random(case.seed)
    drawn = torch.Generator().manual_seed(case.seed)
    reqs = [_Asking([dice.randrange(case.few) for _ in range(case.before + 1)]) for _ in case.asked]
    both = [(make, _plan(case, reqs, device)) for make in (TorchStep, made)]
    roots = [req.output_ids[-1] for req in reqs]
    for number in range(case.steps):
        trees = _Trees(case, roots, dice, device)
        rows = len(reqs) * case.nodes
        logits = torch.randn(rows, case.vocabulary + case.padding, generator=drawn) * 4
        changed, counts = [], []
        for make, plan in both:
            here = logits.to(case.dtype).to(device, copy=True)
            step = make(trees, plan, True)
            step.penalize(here[:, : case.vocabulary])
            step.close(trees.accept_index, trees.accept_lens)
            changed.append(here)
            counts.append((plan.ledger.counts, plan.ledger.length))
        whole = torch.int32 if case.dtype == torch.float32 else torch.int16
        other = changed[0].view(whole) != changed[1].view(whole)
        if bool(other.any()):
            place = other.nonzero()[0].tolist()
            return [f"{case}: {int(other.sum())} logits in step {number}, the first at {place}"]
        for name, ours, theirs in zip(("counts", "length"), *counts, strict=True):
            # Without a penalty in the batch the torch code need not count.
            if (name == "length" or both[0][1].penalties) and not torch.equal(ours, theirs):
                return [f"{case}: {name} after step {number}"]
        for row, req in enumerate(reqs):
            new = [trees.tokens[row][node] for node in trees.ways[row][1:]]
            req.output_ids.extend([*new, dice.randrange(case.few)])
        roots = [req.output_ids[-1] for req in reqs]
    return []


def _plan(case: Case, reqs: Sequence[_Asking], device: torch.device) -> Plan:
    """The plan of a batch and a ledger of its own."""
    ledger = Ledger(case.vocabulary, device)
    rows = [row for row, one in enumerate(case.asked) if one is not None]
    fields = [one for one in case.asked if one is not None]
    held: list[Any] = [copy.copy(reqs[row]) for row in rows]
    entries = [Entry(req, one, None) for req, one in zip(held, fields, strict=True)]
    order = -1 if case.is_apart else 1
    lines = ledger.enter(entries[::order])[::order]
    places = None if len(rows) == len(reqs) else torch.tensor(rows, device=device)
    where = Lines([line.index for line in lines], device)
    pairs = [(reqs[row], line) for row, line in zip(rows, lines, strict=True)]
    return Plan([], [], pairs, fields, places, where, ledger, short=[])
