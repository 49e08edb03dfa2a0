"""Training data: where the target's states come from, in batches of sequences of like length.

`Answered` computes the states from token ids as it goes (the target is small, or there is a GPU to
spare); `Captured` reads them from a folder that `sglang-spec capture standardize` wrote, of any
target at all. Both give the same `Batch`, and the same order for the same seed.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from ..capture.tensorfile import TensorFile
from . import loops
from .target import Target

_ALIGN = 8


class DataError(ValueError):
    """Training data that does not fit the recipe; the text names file and remedy."""


@dataclass(frozen=True)
class Batch:
    """Sequences padded on the right.

    Attributes:
        ids: [batch, length] int64.
        learn: [batch, length] bool on the host, positions whose next token belongs to an answer.
        states: [batch, length, slots * hidden]; last: [batch, length, hidden] after the last norm.
    """

    ids: torch.Tensor
    learn: torch.Tensor
    states: torch.Tensor
    last: torch.Tensor


class Source(Protocol):
    """Where batches come from."""

    tokens: int

    def counts(self) -> Counter[int]:
        """How often each token occurs in what is learned."""

    def order(self, seed: int) -> list[list[int]]:
        """Batches of sample numbers, shuffled."""

    def load(self, batch: Sequence[int]) -> Batch: ...


class Answered:
    """Answers as token ids; the target computes its states when they are needed.

    Args:
        rows: lines of `answers.read`.
        loop_tokens: see `loops.cut`.
        compiled: see `Target.states`.
    """

    def __init__(
        self,
        target: Target,
        rows: Iterable[dict[str, Any]],
        layers: Sequence[int],
        batch_tokens: int,
        loop_tokens: int,
        compiled: bool = False,
    ) -> None:
        self._target, self._layers, self._budget = target, tuple(layers), batch_tokens
        self._compiled = compiled
        self._samples: list[tuple[list[int], int]] = []
        self._counts: Counter[int] = Counter()
        for row in rows:
            answer = loops.cut(row["answer_ids"], loop_tokens)
            if len(answer) > _ALIGN:
                prompt = row["prompt_ids"]
                self._samples.append(([*prompt, *answer], len(prompt)))
                self._counts.update(answer)
        if not self._samples:
            raise DataError("no answer is longer than eight tokens")
        self.tokens = self._counts.total()

    def counts(self) -> Counter[int]:
        return self._counts

    def order(self, seed: int) -> list[list[int]]:
        return grouped([len(ids) for ids, _ in self._samples], self._budget, seed)

    def load(self, batch: Sequence[int]) -> Batch:
        device = self._target.device
        part = [self._samples[number] for number in batch]
        ids = pad([ids for ids, _ in part])
        starts = torch.tensor([start for _, start in part])
        ends = torch.tensor([len(ids) for ids, _ in part])
        column = torch.arange(ids.shape[1])
        learn = (column >= starts[:, None]) & (column < ends[:, None] - 1)
        ids = moved(ids, device)
        states, last = self._target.states(ids, self._layers, self._compiled)
        return Batch(ids, learn, states, last)


class Captured:
    """A folder of `sglang-spec capture standardize`, layout `sglang-spec`.

    Raises:
        DataError: another layout, or not the slots or the width that the draft needs.
    """

    def __init__(
        self, folder: Path, layers: Sequence[int], batch_tokens: int, device: torch.device
    ) -> None:
        path = folder / "data.json"
        try:
            about = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: {error}; give a folder of `capture standardize`") from error
        if about["layout"] != "sglang-spec":
            raise DataError(
                f"{path}: layout = {about['layout']}: write it with --layout sglang-spec"
            )
        loops_of = [slot["loop_index"] for slot in about["slots"]]
        if loops_of != [layer + 1 for layer in layers]:
            raise DataError(
                f"{path}: its slots are loop indices {loops_of}, draft.layers = {list(layers)} are "
                f"{[layer + 1 for layer in layers]}: capture those, or change draft.layers"
            )
        self.hidden = int(about["hidden_size"])
        self._files = [TensorFile(file) for file in sorted(folder.glob("*/*.safetensors"))]
        self._budget, self._device = batch_tokens, device
        self._lengths, self._counts = [], Counter[int]()
        for file in self._files:
            ids, mask = file.read("input_ids"), file.read("loss_mask")
            self._lengths.append(len(ids))
            self._counts.update(ids[mask == 1].tolist())
        if not self._files:
            raise DataError(f"{folder} holds no samples")
        self.tokens = self._counts.total()

    def counts(self) -> Counter[int]:
        return self._counts

    def order(self, seed: int) -> list[list[int]]:
        return grouped(self._lengths, self._budget, seed)

    def load(self, batch: Sequence[int]) -> Batch:
        held = [self._files[number] for number in batch]
        ids = pad([file.read("input_ids").tolist() for file in held])
        masks = pad([file.read("loss_mask").tolist() for file in held])
        ends = torch.tensor([self._lengths[number] for number in batch])
        learn = (masks == 1) & (torch.arange(ids.shape[1]) < ends[:, None] - 1)
        states = self._rows(held, "hidden_states", ids.shape[1])
        last = self._rows(held, "last_hidden_states", ids.shape[1])
        ids, states, last = (moved(one, self._device) for one in (ids, states, last))
        return Batch(ids, learn, states, last)

    def _rows(self, held: Sequence[TensorFile], name: str, length: int) -> torch.Tensor:
        parts = [torch.from_numpy(file.read(name)) for file in held]
        made = parts[0].new_zeros(len(parts), length, parts[0].shape[-1])
        for row, part in enumerate(parts):
            made[row, : len(part)] = part
        return made


def moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A host tensor on the device, without waiting for what the device has still to do."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def pad(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """[rows, length] int64, padded with 0 on the right to a multiple that kernels like."""
    length = -(-max(map(len, rows)) // _ALIGN) * _ALIGN
    return torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])


def grouped(lengths: Sequence[int], budget: int, seed: int) -> list[list[int]]:
    """Numbers in groups of like length, each at most `budget` padded tokens or one sequence.

    The order is a function of the arguments alone.
    """
    draw = random.Random(seed)
    noisy = [(length + 32 * draw.random(), number) for number, length in enumerate(lengths)]
    groups: list[list[int]] = []
    longest = 0
    for _, number in sorted(noisy):
        longest = max(longest, -(-lengths[number] // _ALIGN) * _ALIGN)
        if not groups or (len(groups[-1]) + 1) * longest > budget:
            groups.append([])
            longest = -(-lengths[number] // _ALIGN) * _ALIGN
        groups[-1].append(number)
    draw.shuffle(groups)
    return groups


def vocabulary(counts: Counter[int], size: int, of: int, always: Iterable[int]) -> list[int]:
    """The `size` most frequent of `of` token ids, in increasing order; `always` are among them.

    Equal counts go by the smaller id; tokens that never occur fill up what is left.
    """
    if not size or size >= of:
        return list(range(of))
    must = set(always)
    ranked = sorted(range(of), key=lambda token: (token not in must, -counts[token], token))
    return sorted(ranked[:size])


def coverage(counts: Counter[int], chosen: Iterable[int]) -> float:
    """Share of learned tokens that the draft can propose at all."""
    return sum(counts[token] for token in chosen) / max(1, counts.total())
