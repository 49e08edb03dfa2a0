"""Calling the two attention operators as the attention backend does, and judging each request."""

from typing import NamedTuple

import torch
from sgl_kernel.attention import decode_attention_cpu, extend_attention_cpu
from unit.sgl_kernel import reference
from unit.sgl_kernel.inputs import Cache, cache, disagreement, generator

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
UNIT_SCALES = (1.0, 1.0)


class Heads(NamedTuple):
    kv: int
    group: int
    dim: int
    v_dim: int

    @property
    def query(self) -> int:
        return self.kv * self.group


class Rules(NamedTuple):
    """What changes the weights."""

    window: int = 0
    cap: float = 0.0
    sinks: torch.Tensor | None = None
    causal: bool = True


class Extend(NamedTuple):
    """One extend call: every request's new tokens are its last keys."""

    store: Cache
    heads: Heads
    q: torch.Tensor
    new: list[int]
    rules: Rules
    tree: torch.Tensor | None  # bool [bs, n, n]

    @property
    def starts(self) -> list[int]:
        return [sum(self.new[:b]) for b in range(len(self.new))]


def make_extend(
    seed: int,
    prefixes: list[int],
    new: list[int],
    heads: Heads,
    dtype: torch.dtype,
    rules: Rules = Rules(),  # noqa: B008 - immutable
    tree: torch.Tensor | None = None,
    flat: bool = False,
) -> Extend:
    """Random keys and queries. `flat` makes all weights nearly equal, so that every key counts."""
    rng = generator(seed)
    ends = [prefix + count for prefix, count in zip(prefixes, new, strict=True)]
    store = cache(rng, ends, heads.kv, heads.dim, heads.v_dim, dtype)
    q = torch.randn(sum(new), heads.query, heads.dim, generator=rng) * (0.01 if flat else 1.0)
    return Extend(store, heads, q.to(dtype), new, rules, tree)


def run_extend(
    call: Extend, from_cache: bool = False, scales: tuple[float, float] = UNIT_SCALES
) -> torch.Tensor:
    store, heads = call.store, call.heads
    out = torch.full((*call.q.shape[:2], heads.v_dim), float("nan"), dtype=call.q.dtype)
    k = v = None
    if not from_cache:
        slots = torch.cat(
            [store.slots(b)[store.lengths[b] - new :] for b, new in enumerate(call.new)]
        )
        k, v = store.k[slots], store.v[slots]
    before = (store.k.clone(), store.v.clone())
    extend_attention_cpu(
        *(call.q, k, v, out, store.k, store.v, *scales, store.table, store.rows),
        torch.tensor(store.lengths),
        torch.tensor(call.new, dtype=torch.int32),
        torch.tensor(call.starts, dtype=torch.int32),
        *(max(call.new), heads.dim**-0.5, call.rules.cap, False, call.rules.window, None),
        *(call.rules.sinks, None if call.tree is None else call.tree.flatten()),
        call.rules.causal,
    )
    for cached, old in zip((store.k, store.v), before, strict=True):
        assert same_bytes(cached, old), "extend wrote to the cache"
    return out


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.view(torch.uint8), right.view(torch.uint8))


def judge_extend(call: Extend, out: torch.Tensor) -> float:
    """The worst request's error in units of what is allowed."""
    worst = 0.0
    for b, (new, start) in enumerate(zip(call.new, call.starts, strict=True)):
        if new == 0:
            continue
        slots = call.store.slots(b)
        tree = None if call.tree is None else call.tree[b]
        visible = reference.visibility(
            slots.numel(), new, call.rules.window, call.rules.causal, tree
        )
        part = slice(start, start + new)
        error = disagreement(
            *(out[part], call.q[part], call.store.k[slots], call.store.v[slots]),
            visible=visible,
            scale=call.heads.dim**-0.5,
            cap=call.rules.cap,
            sinks=call.rules.sinks,
        )
        worst = max(worst, error)
    return worst


class Decode(NamedTuple):
    """One decode call: the last key of every request is new and not in the cache yet."""

    store: Cache
    heads: Heads
    q: torch.Tensor
    rules: Rules


def make_decode(
    seed: int,
    ends: list[int],
    heads: Heads,
    dtype: torch.dtype,
    rules: Rules = Rules(),  # noqa: B008 - immutable
    flat: bool = False,
) -> Decode:
    made = make_extend(
        seed, [end - 1 for end in ends], [1] * len(ends), heads, dtype, rules, None, flat
    )
    return Decode(made.store, heads, made.q, rules)


def run_decode(
    call: Decode, stored: bool = False, scales: tuple[float, float] = UNIT_SCALES
) -> torch.Tensor:
    """Take each request's newest key out of the cache, and let the operator put it back."""
    store, heads = call.store, call.heads
    out = torch.full((*call.q.shape[:2], heads.v_dim), float("nan"), dtype=call.q.dtype)
    loc = torch.stack([store.slots(b)[-1] for b in range(len(store.lengths))])
    k = v = None
    expected = (store.k.clone(), store.v.clone())
    if not stored:
        k, v = store.k[loc], store.v[loc]
        store.k[loc] = store.v[loc] = float("nan")
    decode_attention_cpu(
        *(call.q, store.k, store.v, *scales, out, k, v, loc, None, store.table, store.rows),
        torch.tensor(store.lengths),
        *(heads.dim**-0.5, call.rules.cap, False, call.rules.window, None, call.rules.sinks),
    )
    for cached, want in zip((store.k, store.v), expected, strict=True):
        assert same_bytes(cached, want), "the new rows were not stored"
    return out


def judge_decode(call: Decode, out: torch.Tensor) -> float:
    as_extend = Extend(
        call.store, call.heads, call.q, [1] * len(call.store.lengths), call.rules, None
    )
    return judge_extend(as_extend, out)
