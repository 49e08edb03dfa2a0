"""Requests and verify steps without a server, and upstream's own penalizers as a judge."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.sampling import penaltylib
from sglang.srt.sampling.sampling_params import SamplingParams

VOCABULARY = 50
EOS = 3
PROMPT = [7, 8, 9]
PENALIZERS = {
    penaltylib.BatchedFrequencyPenalizer,
    penaltylib.BatchedMinNewTokensPenalizer,
    penaltylib.BatchedPresencePenalizer,
    penaltylib.BatchedRepetitionPenalizer,
}


class Request:
    """What the code reads of a `Req`."""

    def __init__(self, output: list[int], **sampling: Any) -> None:
        self.sampling_params = SamplingParams(**sampling)
        self.eos_token_ids = {EOS}
        self.tokenizer = SimpleNamespace(additional_stop_token_ids={4}, eos_token_id=EOS)
        self.retraction_count = 0
        self.origin_input_ids = array("q", PROMPT)
        self.output_ids = array("q", output)
        self.kv = SimpleNamespace(kv_committed_len=len(PROMPT) + max(0, len(output) - 1))


@dataclass
class Verify:
    """What the code reads of an `EagleVerifyInput`; trees by the parents of their nodes."""

    tokens: list[list[int]]  # [requests][nodes]
    parents: list[list[int]]
    tree_topk: int
    draft_token: torch.Tensor = field(init=False)
    retrieve_next_token: torch.Tensor = field(init=False)
    retrieve_next_sibling: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        rows, self.draft_token_num = len(self.tokens), len(self.tokens[0])
        self.draft_token = torch.tensor(self.tokens).view(-1)
        self.retrieve_next_token = torch.full((rows, self.draft_token_num), -1)
        self.retrieve_next_sibling = torch.full((rows, self.draft_token_num), -1)
        for row, parents in enumerate(self.parents):
            last: dict[int, int] = {}
            for node, parent in enumerate(parents[1:], start=1):
                if parent in last:
                    self.retrieve_next_sibling[row, last[parent]] = node
                else:
                    self.retrieve_next_token[row, parent] = node
                last[parent] = node

    @property
    def max_tree_depth(self) -> int:
        return 1 + max(len(self.way(row, node)) for row, node in self.nodes())

    def nodes(self) -> list[tuple[int, int]]:
        return [(r, n) for r in range(len(self.tokens)) for n in range(self.draft_token_num)]

    def way(self, row: int, node: int) -> list[int]:
        """Tokens from the root's child to the node."""
        tokens: list[int] = []
        while node:
            tokens.insert(0, self.tokens[row][node])
            node = self.parents[row][node]
        return tokens


def chains(tokens: list[list[int]]) -> Verify:
    parents = [max(0, node - 1) for node in range(len(tokens[0]))]
    return Verify(tokens, [parents] * len(tokens), tree_topk=1)


class Batch:
    """What the code reads of a `ScheduleBatch`."""

    def __init__(self, reqs: list[Any], **info: Any) -> None:
        self.reqs = reqs
        self.device = "cpu"
        self.sampling_info = SimpleNamespace(has_custom_logit_processor=False)
        vars(self.sampling_info).update(info)


def judged(req: Request, output: list[int], logits: torch.Tensor) -> torch.Tensor:
    """The logits [vocabulary] of the token after `output`, as plain decoding changes them."""
    batch = Batch([req])
    orchestrator = penaltylib.BatchedPenalizerOrchestrator(VOCABULARY, batch, PENALIZERS)  # type: ignore[arg-type]
    for token in output:
        orchestrator.cumulate_output_tokens(torch.tensor([token]))
    found = logits[None].clone()
    added = torch.zeros_like(found)
    orchestrator.accumulate_additive_penalties(added)
    found += added
    scale = orchestrator.accumulate_scaling_penalties()
    if scale is not None:
        found = torch.where(found < 0, found * scale, found / scale)
    return found[0]
