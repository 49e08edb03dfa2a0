"""Custom logit processors at every node of the windows of a verify step.

A processor sees a request through `custom_params`: the parameters themselves, in which some keep
what they have to remember, and `__req__` with all that was put out. So each node has a copy of the
parameters as its parent left them, and a request whose output goes on to that node. What the
processor left at the last accepted node becomes the request's own.

The host has to know the tokens of the tree and of the step before, so a batch with a processor is
launched when the result of the step before is there (`window.needs_last_result`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.spec_hardening.fidelity import memories
from sglang.srt.spec_hardening.fidelity.memories import REQUEST
from sglang.srt.spec_hardening.fidelity.tree import Tree, parents_in

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
    from sglang.srt.sampling.sampling_batch_info import ProcessorEntry

Parameters = dict[str, Any] | None


class Processors:
    """The processors of a batch and what they know at each node: `apply`, verify, `commit`."""

    def __init__(self, verify: Tree, batch: ScheduleBatch) -> None:
        info = batch.sampling_info
        self._entries = list(info.custom_logit_processor.values())
        self._parameters: list[Parameters] = info.custom_params
        self._reqs = batch.reqs
        self._nodes = verify.draft_token_num
        rows = sorted(row for entry in self._entries for row in entry.rows)
        self._rows = rows
        parents = parents_in(verify, torch.tensor(rows, device=verify.draft_token.device)).tolist()
        self._parents: dict[int, list[int]] = dict(zip(rows, parents, strict=True))
        self._depths = {row: _depths(found) for row, found in self._parents.items()}
        tokens = verify.draft_token.view(-1, self._nodes).tolist()
        self._tokens = {row: tokens[row] for row in rows}
        self._left: dict[tuple[int, int], Parameters] = {}
        for row in rows:
            if (own := self._parameters[row]) is not None:
                memories.note(self._reqs[row], own)

    def apply(self, logits: torch.Tensor) -> None:
        """Change logits [requests * nodes, vocabulary] in place, parents before their children."""
        for entry in self._entries:
            for places in self._levels(entry):
                index = torch.tensor(
                    [row * self._nodes + node for row, node in places], device=logits.device
                )
                given = [self._given(row, node) for row, node in places]
                changed = entry.processor(logits.index_select(0, index), given)
                logits.index_copy_(0, index, changed.to(logits.dtype))
                self._left.update(zip(places, given, strict=True))

    def commit(self, accept_index: torch.Tensor, accept_lens: torch.Tensor) -> None:
        """Let each request have what its processor left at the last node that was accepted.

        Args:
            accept_index: int [requests, depth], running numbers of the accepted nodes, then -1.
            accept_lens: int [requests], how many.
        """
        last = accept_index.gather(1, accept_lens[:, None].long() - 1)[:, 0].tolist()
        for row in self._rows:
            own, left = self._parameters[row], self._left[row, last[row] - row * self._nodes]
            if own is None or left is None:
                continue
            request = {REQUEST: own[REQUEST]} if REQUEST in own else {}
            own.clear()
            own.update({**left, **request})

    def _levels(self, entry: ProcessorEntry) -> Iterator[list[tuple[int, int]]]:
        """Nodes of a processor's requests, (row, node), by their depth."""
        deepest = max(max(self._depths[row]) for row in entry.rows)
        for depth in range(deepest + 1):
            yield [
                (row, node)
                for row in entry.rows
                for node, level in enumerate(self._depths[row])
                if level == depth
            ]

    def _given(self, row: int, node: int) -> Parameters:
        """The parameters as they are when the token after a node is judged."""
        own = self._parameters[row]
        if own is None:
            return None
        before = own if node == 0 else self._left[row, self._parents[row][node]]
        assert before is not None
        given = memories.state_of(before)
        if REQUEST in own:
            given[REQUEST] = self._request(row, node)
        return given

    def _request(self, row: int, node: int) -> Req:
        """The request as it would be had it put out what leads to the node."""
        way: list[int] = []
        while node:
            way.append(self._tokens[row][node])
            node = self._parents[row][node]
        request = copy.copy(self._reqs[row])
        request.output_ids = request.output_ids[:]
        request.output_ids.extend(reversed(way))
        return request


def _depths(parents: list[int]) -> list[int]:
    """How many nodes lie between the root and each node, itself included; 0 for the root."""
    depths = []
    for node in range(len(parents)):
        depth = 0
        while node and depth < len(parents):
            node, depth = parents[node], depth + 1
        depths.append(depth)
    return depths
