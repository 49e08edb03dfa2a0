"""A custom logit processor sees at each position what it would see there without speculation."""

from __future__ import annotations

import copy
import random
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.processors import EveryFifth, OnlyToken, Remembers
from kit.verify_steps import VOCABULARY, Batch, Request, Verify, chains
from sglang.srt.sampling.sampling_batch_info import ProcessorEntry
from sglang.srt.spec_hardening.fidelity import window as fidelity

KINDS = (OnlyToken, EveryFifth, Remembers)


def batch_of(kinds: list[Any]) -> Batch:
    """One request for each kind of processor; None for a request without one."""
    reqs = [Request([5]) for _ in kinds]
    entries = {}
    for kind in set(kinds) - {None}:
        rows = [row for row, other in enumerate(kinds) if other is kind]
        entries[hash(kind)] = ProcessorEntry(kind(), rows, torch.tensor(rows))
    parameters = [
        None if kind is None else {"token": 9, "__req__": req}
        for kind, req in zip(kinds, reqs, strict=True)
    ]
    return Batch(
        reqs,
        has_custom_logit_processor=True,
        custom_logit_processor=entries,
        custom_params=parameters,
    )


def alone(kind: Any, parameters: Any, request: Any, logits: torch.Tensor) -> torch.Tensor:
    parameters["__req__"] = request
    changed: torch.Tensor = kind()(logits[None].clone(), [parameters])
    return changed[0]


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 6),
    st.lists(st.sampled_from([None, *KINDS]), min_size=1, max_size=5).filter(any),
)
def test_positions_are_judged_one_after_the_other(seed: int, width: int, kinds: list[Any]) -> None:
    dice = random.Random(seed)
    torch.manual_seed(seed)
    batch = batch_of(kinds)
    judge: list[Any] = [None if kind is None else {"token": 9} for kind in kinds]
    for _ in range(5):
        tokens = [
            [req.output_ids[-1], *(dice.randrange(VOCABULARY) for _ in range(width))]
            for req in batch.reqs
        ]
        if dice.random() < 0.5:
            verify = chains(tokens)
        else:
            ways = [[0, *(dice.randrange(n) for n in range(1, width + 1))] for _ in kinds]
            verify = Verify(tokens, ways, tree_topk=width)
        logits = torch.randn(len(kinds) * (width + 1), VOCABULARY)
        before = logits.clone()
        window = fidelity.open_window(verify, batch, logits)  # type: ignore[arg-type]
        assert window is not None
        window.process(logits)
        index = torch.full((len(kinds), verify.max_tree_depth), -1, dtype=torch.int32)
        lengths = []
        for row, (kind, req) in enumerate(zip(kinds, batch.reqs, strict=True)):
            start = row * (width + 1)
            left = {}
            for node in range(width + 1):
                if kind is None:
                    torch.testing.assert_close(logits[start + node], before[start + node])
                    continue
                way = verify.way(row, node)
                parameters = copy.deepcopy(
                    judge[row] if node == 0 else left[verify.parents[row][node]]
                )
                request = copy.copy(req)
                request.output_ids = req.output_ids[:]
                request.output_ids.extend(way)
                expected = alone(kind, parameters, request, before[start + node])
                torch.testing.assert_close(logits[start + node], expected)
                left[node] = {k: v for k, v in parameters.items() if k != "__req__"}
            last, taken = 0, [0]
            while dice.random() < 0.8:
                children = [n for n in range(1, width + 1) if verify.parents[row][n] == last]
                if not children:
                    break
                last = dice.choice(children)
                taken.append(last)
            for order, node in enumerate(taken):
                index[row, order] = start + node
            lengths.append(len(taken))
            if kind is not None:
                judge[row] = left[last]
            req.output_ids.extend([*verify.way(row, last), dice.randrange(VOCABULARY)])
        window.close(index, torch.tensor(lengths))
        for own, expected, req in zip(
            batch.sampling_info.custom_params, judge, batch.reqs, strict=True
        ):
            if own is not None:
                assert own == {**expected, "__req__": req}


def test_a_batch_with_a_processor_waits_for_the_step_before() -> None:
    assert fidelity.needs_last_result(batch_of([OnlyToken]))  # type: ignore[arg-type]
    assert not fidelity.needs_last_result(Batch([Request([5])]))  # type: ignore[arg-type]
