"""`sglang.launch_server` whose ranks can be made faulty while it serves: a program for tests only.

The file named by `SPEC_TEST_FAULT` says what is wrong from the next step on: nothing while it is
empty, else `KIND RANK`. Change it only while no request runs, so that all ranks see the same.

    target-shard R   rank R computes with the attention output shard of its neighbour
    draft-shard -    the draft's ranks hold each other's shards, those of the target do not
    accept R         rank R accepts one draft less than the others; a rank check then waits for
                     all the steps it is to compare at a time, however long these take
    crowd N          verify answers the first of N or more requests with a wrong last token
    capture -        the target captures the states of other layers than the draft was made for
    files -          each step leaves a file open
    memory N         each step keeps N KiB of memory
    generator R      rank R draws from a generator in another state; no fault: the first rank counts
    hot -            verify samples at a temperature that is two fifths too high
    argmax -         verify ignores the sampling parameters, as upstream does on a CPU
    late -           verify draws with the position after the right one
    relaxed -        verify judges its whole window with the penalties of the first position, as
                     upstream does

Runs under both start methods: a forked rank inherits what is replaced here, a spawned one imports
this file as its main module.
"""

from __future__ import annotations

import dataclasses
import os
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sglang.srt.distributed import get_tp_group
from sglang.srt.spec_hardening import rank_check, target_sampling
from sglang.srt.spec_hardening.fidelity.penalties import Counts, Terms
from sglang.srt.spec_hardening.fidelity.tree import Ways
from sglang.srt.speculative import eagle_worker_common, eagle_worker_v2

VARIABLE = "SPEC_TEST_FAULT"
PATIENCE_S = rank_check.PATIENCE_S


class Faults:
    """The fault that is planted in this rank at the moment."""

    def __init__(self) -> None:
        self.kind = ""
        self.rank = 0
        self._undo: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        self._layers: list[int] | None = None
        self.kept: list[bytes] = []

    def refresh(self, worker: Any) -> None:
        """Read the file; take the old fault out and plant the new one."""
        said = Path(os.environ[VARIABLE]).read_text().split()
        kind, rank = (said[0], said[1]) if said else ("", "0")
        if (kind, rank) == (self.kind, str(self.rank)):
            return
        if self._layers is not None:
            worker.target_worker.model_runner.model.model.layers_to_capture = self._layers
            self._layers = None
        for parameter, whole in self._undo:
            parameter.data.copy_(whole)
        self._undo.clear()
        self.kind, self.rank = kind, int(rank) if rank.isdigit() else 0
        rank_check.PATIENCE_S = 3600.0 if kind == "accept" else PATIENCE_S
        target = worker.target_worker.model_runner.model
        draft = worker.draft_worker.draft_runner.model
        if kind == "target-shard":
            for name, parameter in target.named_parameters():
                if "o_proj" in name:
                    self._rotate(parameter, only=self.rank)
        elif kind == "capture":
            self._layers = target.model.layers_to_capture
            target.model.layers_to_capture = [layer - 1 for layer in self._layers]
        elif kind == "draft-shard":
            shared = {parameter.data_ptr() for parameter in target.parameters()}
            for parameter in draft.parameters():
                if parameter.data_ptr() not in shared:
                    self._rotate(parameter, only=None)

    def _rotate(self, parameter: torch.nn.Parameter, only: int | None) -> None:
        """Give rank `only`, or every rank, the shard of the next rank."""
        group = get_tp_group()
        shards = [torch.empty_like(parameter.data) for _ in range(group.world_size)]
        torch.distributed.all_gather(shards, parameter.data, group=group.cpu_group)
        if only in (None, group.rank_in_group):
            self._undo.append((parameter, parameter.data.clone()))
            parameter.data.copy_(shards[(group.rank_in_group + 1) % group.world_size])


FAULTS = Faults()


def forward_with_faults(plain: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        FAULTS.refresh(self)
        if FAULTS.kind == "files":
            os.open(os.devnull, os.O_RDONLY)
        if FAULTS.kind == "memory":
            FAULTS.kept.append(b"\1" * (FAULTS.rank * 1024))
        return plain(self, *args, **kwargs)

    return forward


def sample_with_faults(plain: Callable[..., Any]) -> Callable[..., Any]:
    def sample(*args: Any, **kwargs: Any) -> Any:
        predict, accept_lens, accept_index = plain(*args, **kwargs)
        if FAULTS.kind == "accept" and get_tp_group().rank_in_group == FAULTS.rank:
            accept_lens = (accept_lens - 1).clamp(min=1)
        if FAULTS.kind == "crowd" and len(accept_lens) >= FAULTS.rank:
            last = accept_index[0, int(accept_lens[0]) - 1]
            predict[last] ^= 1
        return predict, accept_lens, accept_index

    return sample


def draw_with_faults(plain: Callable[..., Any]) -> Callable[..., Any]:
    def draw(logits: torch.Tensor, info: Any, positions: torch.Tensor) -> torch.Tensor:
        if FAULTS.kind == "hot":
            info = dataclasses.replace(info, temperatures=info.temperatures * 1.4)
        if FAULTS.kind == "generator" and get_tp_group().rank_in_group == FAULTS.rank:
            with torch.random.fork_rng(devices=[]):
                torch.rand(1)
                return plain(logits, info, positions)
        if FAULTS.kind == "late":
            positions = positions + 1
        if FAULTS.kind == "argmax":
            return logits.argmax(dim=-1)
        return plain(logits, info, positions)

    return draw


def penalize_with_faults(plain: Callable[..., Any]) -> Callable[..., Any]:
    def penalize(terms: Terms, logits: Any, counts: Counts) -> None:
        if FAULTS.kind == "relaxed":
            root = counts.totals[:, :1].expand_as(counts.totals)
            counts = dataclasses.replace(counts, totals=root)
        plain(terms, logits, counts)

    return penalize


def ban_with_faults(plain: Callable[..., Any]) -> Callable[..., Any]:
    def ban(terms: Terms, logits: Any, lines: Any, ledger: Any, ways: Ways) -> None:
        if FAULTS.kind == "relaxed":
            count, nodes = ways.tokens.shape
            above = torch.zeros(count, nodes, nodes, device=ways.tokens.device)
            above[:, :, 0] = 1
            ways = dataclasses.replace(ways, above=above)
        plain(terms, logits, lines, ledger, ways)

    return ban


if VARIABLE in os.environ:
    worker_class = eagle_worker_v2.EAGLEWorkerV2
    worker_class.forward_batch_generation = forward_with_faults(
        worker_class.forward_batch_generation
    )
    eagle_worker_common.eagle_sample = sample_with_faults(eagle_worker_common.eagle_sample)
    target_sampling.draw = draw_with_faults(target_sampling.draw)
    Terms.penalize = penalize_with_faults(Terms.penalize)  # type: ignore[method-assign]
    Terms.ban = ban_with_faults(Terms.ban)  # type: ignore[method-assign]

if __name__ == "__main__":
    # `__main__` stays this file: a spawned rank imports it again.
    runpy.run_module("sglang.launch_server", run_name="__main__")
