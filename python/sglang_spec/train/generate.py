"""Batched answering by a plain target: a static batch, left-padded, replayed from CUDA graphs.

One row is one prompt; all rows are as far at the same time, so a step is one forward of one column.
Rows that have ended run on and are cut afterwards. Attention reads the columns up to the next
multiple of `BUCKET`, each width a graph of its own. On a CPU the same code runs without graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .target import Target, rms_norm

BUCKET = 64
_ALIGN = 8  # columns that attention kernels with a mask like to be multiples of
_CHUNK = 128  # rows of a prefill
_BLOCKED = -1e4  # added to scores of columns that a row may not see; finite in float16


@dataclass(frozen=True)
class Request:
    """How a batch is to be answered.

    Attributes:
        new_tokens: at most so many tokens a row.
        temperature: 0 is greedy.
        end: the token that ends a row; it is part of the answer.
        stop_share: the batch ends when this share of its rows has.
    """

    new_tokens: int
    temperature: float
    end: int
    stop_share: float = 1.0


class Generator:
    """`Generator(target, rows, columns)(prompts, request)`; the cache is allocated once.

    Args:
        rows: prompts of a batch, at the most.
        columns: longest prompt and answer together; rounded up to a whole bucket.
    """

    def __init__(self, target: Target, rows: int, columns: int, seed: int = 0) -> None:
        shape, device = target.shape, target.device
        self.target, self.rows = target, rows
        self.columns = -(-columns // BUCKET) * BUCKET
        size = (shape.layers, rows, shape.kv_heads, self.columns, shape.head_dim)
        self.keys = torch.zeros(size, dtype=target.dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        # Read and written by captured graphs: these tensors are filled, never replaced.
        self.token = torch.zeros(rows, dtype=torch.long, device=device)
        self.padding = torch.zeros(rows, dtype=torch.long, device=device)
        self.column = torch.zeros(1, dtype=torch.long, device=device)
        self.temperature = torch.ones(1, device=device)
        self._graphs: dict[tuple[int, bool], Callable[[], None]] = {}
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        torch.manual_seed(seed)  # a graph can only draw from the device's own generator

    @torch.no_grad()
    def __call__(self, prompts: Sequence[Sequence[int]], request: Request) -> list[list[int]]:
        """Answers in the order of the prompts, at most `rows` of them."""
        count, longest = len(prompts), max(map(len, prompts))
        width = -(-longest // _ALIGN) * _ALIGN
        if count > self.rows or width + request.new_tokens > self.columns:
            raise ValueError(
                f"{count} prompts of up to {longest} tokens and {request.new_tokens} new ones do "
                f"not fit {self.rows} rows of {self.columns} columns"
            )
        sampled = request.temperature > 0
        self.temperature.fill_(request.temperature)
        self._prefill(prompts, width, sampled)
        made = [self.token.clone()]
        ended = self.token[:count] == request.end
        for new in range(1, request.new_tokens):
            self._step(min(self.columns, -(-(width + new) // BUCKET) * BUCKET), sampled)()
            made.append(self.token.clone())
            ended |= self.token[:count] == request.end
            # Asking the device costs a wait, so it is asked now and then.
            if new % 16 == 0 and float(ended.float().mean()) >= request.stop_share:
                break
        rows = torch.stack(made, 1)[:count].tolist()
        return [row[: row.index(request.end) + 1] if request.end in row else row for row in rows]

    def _prefill(self, prompts: Sequence[Sequence[int]], width: int, sampled: bool) -> None:
        device, rows = self.target.device, list(prompts)
        rows += [[0]] * (self.rows - len(rows))  # idle rows: one token each
        padded = [[0] * (width - len(row)) + list(row) for row in rows]
        ids = torch.tensor(padded, device=device)
        self.padding.copy_(torch.tensor([width - len(row) for row in rows], device=device))
        columns, picked = torch.arange(width, device=device), []
        for begin in range(0, self.rows, _CHUNK):
            part = slice(begin, min(begin + _CHUNK, self.rows))
            padding = self.padding[part, None]
            earlier = columns[None, None] <= columns[None, :, None]
            # A padded column sees itself, so that no row of scores is blocked whole.
            seen = (earlier & (columns >= padding)[:, None]) | torch.eye(
                width, dtype=torch.bool, device=device
            )
            places = (columns[None] - padding).clamp(min=0)
            last = self._forward(ids[part], part, places, columns, self._bias(seen), width)
            picked.append(self._pick(self.target.logits(last), sampled))
        self.token.copy_(torch.cat(picked))
        self.column.fill_(width)

    def _bias(self, seen: torch.Tensor) -> torch.Tensor:
        """[rows, 1, queries, columns] to add to scores, of [rows, queries, columns] bool."""
        zeros = torch.zeros(seen.shape, dtype=self.target.dtype, device=seen.device)
        return zeros.masked_fill_(~seen, _BLOCKED)[:, None]

    def _forward(
        self,
        ids: torch.Tensor,
        rows: slice,
        places: torch.Tensor,
        write: torch.Tensor,
        bias: torch.Tensor,
        width: int,
    ) -> torch.Tensor:
        """Last state of each row, [rows, hidden]; fills the cache at columns `write`.

        The query heads of one KV head are folded into the query axis: no key is copied.
        """
        target, shape = self.target, self.target.shape
        count, length, group = *ids.shape, shape.heads // shape.kv_heads
        table = target.table[:, places][:, :, None]
        size = (count, shape.kv_heads, group * length, width)
        bias = bias[:, :, None].expand(count, 1, group, length, width)
        bias = bias.reshape(count, 1, group * length, width).expand(size)
        x = F.embedding(ids, target.embedding)
        for index in range(shape.layers):
            q, k, v = target.project(index, x, table)
            keys, values = self.keys[index, rows], self.values[index, rows]
            keys.index_copy_(2, write, k)
            values.index_copy_(2, write, v)
            q = q.reshape(count, shape.kv_heads, group * length, shape.head_dim)
            mixed = F.scaled_dot_product_attention(
                q, keys[:, :, :width], values[:, :, :width], attn_mask=bias
            )
            mixed = mixed.reshape(count, shape.heads, length, shape.head_dim).transpose(1, 2)
            x = target.finish(index, x, mixed.flatten(2))
        return rms_norm(x[:, -1], target.final_norm, shape.eps)

    def _pick(self, logits: torch.Tensor, sampled: bool) -> torch.Tensor:
        """The best token, or one drawn: the best after Gumbel noise times the temperature."""
        if sampled:
            logits = logits.float()
            noise = torch.empty_like(logits).exponential_().log_()
            logits = logits - noise.mul_(self.temperature)
        return logits.argmax(-1)

    def _decode(self, width: int, sampled: bool) -> None:
        columns = torch.arange(width, device=self.target.device)
        seen = (columns <= self.column) & (columns >= self.padding[:, None])
        places = (self.column - self.padding)[:, None]
        last = self._forward(
            self.token[:, None], slice(None), places, self.column, self._bias(seen[:, None]), width
        )
        self.token.copy_(self._pick(self.target.logits(last), sampled))
        self.column.add_(1)

    def _step(self, width: int, sampled: bool) -> Callable[[], None]:
        """One more column; a graph where there is a GPU, captured the first time."""
        if self.target.device.type != "cuda":
            return lambda: self._decode(width, sampled)
        if (width, sampled) not in self._graphs:
            self._graphs[width, sampled] = self._capture(width, sampled)
        return self._graphs[width, sampled]

    def _capture(self, width: int, sampled: bool) -> Callable[[], None]:
        token, column = self.token.clone(), self.column.clone()
        # Twice: outside a graph first, which lets libraries allocate what they keep.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._decode(width, sampled)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        self.token.copy_(token)
        self.column.copy_(column)
        with torch.cuda.graph(graph, pool=self._pool):
            self._decode(width, sampled)
        self.token.copy_(token)
        self.column.copy_(column)
        replay: Callable[[], None] = graph.replay
        return replay
