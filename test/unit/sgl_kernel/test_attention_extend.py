"""`extend_attention_cpu` against float64 loops. For the tolerance see `inputs.tolerance`."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from unit.sgl_kernel.attention_calls import (
    DTYPES,
    Extend,
    Heads,
    Rules,
    judge_extend,
    make_decode,
    make_extend,
    run_decode,
    run_extend,
)
from unit.sgl_kernel.inputs import generator, quick, random_tree

SMOLLM = Heads(3, 3, 64, 64)

heads = st.builds(
    lambda kv, group, dim: Heads(kv, group, dim, dim),
    st.integers(1, 2),
    st.integers(1, 4),
    st.sampled_from([8, 16]),
)
seeds = st.integers(0, 2**31)


def trees(seed: int, batch: int, n: int) -> torch.Tensor:
    rng = generator(seed)
    return torch.stack([random_tree(rng, n) for _ in range(batch)])


@quick(60)
@given(
    seeds,
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=6),
    heads,
    st.sampled_from(DTYPES),
    st.sampled_from([0, 1, 7]),
    st.sampled_from([0.0, 2.0]),
    st.booleans(),
    st.booleans(),
)
def test_causal_extend_equals_reference(
    seed: int,
    requests: list[tuple[int, int]],
    shape: Heads,
    dtype: torch.dtype,
    window: int,
    cap: float,
    has_sinks: bool,
    from_cache: bool,
) -> None:
    """Requests that extend by nothing, by one, and by several, with and without a prefix."""
    sinks = torch.randn(shape.query, generator=generator(seed)) if has_sinks else None
    prefixes, new = [p + 1 for p, _ in requests], [n for _, n in requests]
    if sum(new) == 0:
        new[0] = 3
    call = make_extend(seed, prefixes, new, shape, dtype, Rules(window, cap, sinks))
    assert judge_extend(call, run_extend(call, from_cache)) <= 1


@quick(50)
@given(
    seeds,
    st.lists(st.integers(0, 40), min_size=1, max_size=6),
    st.integers(1, 12),
    heads,
    st.sampled_from(DTYPES),
    st.sampled_from([0, 4]),
    st.sampled_from([0.0, 2.0]),
    st.booleans(),
)
def test_tree_extend_equals_reference(
    seed: int,
    prefixes: list[int],
    n: int,
    shape: Heads,
    dtype: torch.dtype,
    window: int,
    cap: float,
    has_sinks: bool,
) -> None:
    sinks = torch.randn(shape.query, generator=generator(seed)) if has_sinks else None
    new = [n] * len(prefixes)
    tree = trees(seed, len(prefixes), n)
    call = make_extend(seed, prefixes, new, shape, dtype, Rules(window, cap, sinks), tree)
    assert judge_extend(call, run_extend(call)) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("prefixes", [[700], [300, 1200, 310, 40, 1190]], ids=["one", "unequal"])
@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_verify_on_long_contexts(dtype: torch.dtype, prefixes: list[int], shape: str) -> None:
    """Padding of more than one key block of 512, and lengths that fall into several groups."""
    tree = trees(0, len(prefixes), 4) if shape == "tree" else None
    call = make_extend(1, prefixes, [4] * len(prefixes), SMOLLM, dtype, tree=tree)
    assert judge_extend(call, run_extend(call)) <= 1


# Long extends leave the folded form. The sizes put a block border of 256 queries inside a request.
LONG: dict[str, dict[str, Any]] = {
    "no prefix": {"prefixes": [0], "new": [280]},
    "prefix": {"prefixes": [90], "new": [280]},
    "two requests": {"prefixes": [0, 30], "new": [270, 130]},
    "window": {"prefixes": [90], "new": [280], "rules": Rules(window=50)},
    "window, no prefix": {"prefixes": [0], "new": [280], "rules": Rules(window=50)},
    "cap": {"prefixes": [10], "new": [270], "rules": Rules(cap=2.0)},
    "cap, no prefix": {"prefixes": [0], "new": [270], "rules": Rules(cap=2.0)},
    "sinks": {"prefixes": [10], "new": [270], "rules": Rules(sinks=torch.linspace(-1, 1, 4))},
    "sinks, no prefix": {"prefixes": [0], "new": [270], "rules": Rules(sinks=torch.zeros(4))},
    "all see all": {"prefixes": [10], "new": [270], "rules": Rules(causal=False)},
    "tree": {"prefixes": [10, 20], "new": [64, 64], "tree": trees(5, 2, 64)},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", LONG, ids=str)
def test_long_extends(dtype: torch.dtype, case: str) -> None:
    call = make_extend(2, heads=Heads(2, 2, 8, 8), dtype=dtype, **LONG[case])
    assert judge_extend(call, run_extend(call)) <= 1


def test_values_narrower_than_keys() -> None:
    for new in ([5, 5], [130, 3]):
        call = make_extend(2, [30, 9], new, Heads(2, 2, 24, 16), torch.float32)
        assert judge_extend(call, run_extend(call)) <= 1


def test_without_causality_every_new_token_sees_all() -> None:
    call = make_extend(3, [4, 0], [6, 6], SMOLLM, torch.float32, Rules(causal=False))
    assert judge_extend(call, run_extend(call)) <= 1


def test_requests_in_any_order_of_rows() -> None:
    """Start locations that are not ascending: rows of q are found by index."""
    call = make_extend(4, [20, 20, 20], [4, 4, 4], SMOLLM, torch.float32)
    out = run_extend(call)
    turned = torch.tensor([2, 0, 1])
    store = call.store
    mixed = torch.empty_like(out)
    torch.ops.sgl_kernel.extend_attention_cpu(
        *(call.q, None, None, mixed, store.k, store.v, 1.0, 1.0, store.table, store.rows[turned]),
        *(torch.tensor([24] * 3), torch.tensor([4] * 3), turned * 4, 4, 0.125, 0.0, False, 0),
    )
    assert float((mixed - out).abs().max()) < 1e-6


def test_new_keys_come_from_the_call_where_given() -> None:
    """The cache rows of the new tokens may still be empty: a caller that does not save them."""
    call = make_extend(5, [30, 20], [4, 4], SMOLLM, torch.float32)
    store = call.store
    own = torch.cat([store.slots(b)[-4:] for b in range(2)])
    k, v = store.k[own], store.v[own]
    empty = store._replace(k=store.k.clone(), v=store.v.clone())
    empty.k[own] = empty.v[own] = 0
    out = torch.empty_like(call.q)
    torch.ops.sgl_kernel.extend_attention_cpu(
        *(call.q, k.flatten(1), v.flatten(1), out, empty.k, empty.v, 1.0, 1.0),
        *(store.table, store.rows, torch.tensor(store.lengths), torch.tensor([4, 4])),
        *(torch.tensor([0, 4]), 4, 0.125, 0.0, False, 0),
    )
    assert judge_extend(call, out) <= 1


@pytest.mark.parametrize("prefixes", [[60], [60, 61, 200]], ids=["one", "batch"])
def test_verify_equals_decode_in_float32(prefixes: list[int]) -> None:
    """The target's choice must not depend on how many tokens are checked at once. Both forms sum
    the same float32 products in another order; 2e-6 is 16 roundings of a result of size 1."""
    width = 4
    verify = make_extend(6, prefixes, [width] * len(prefixes), SMOLLM, torch.float32)
    checked = run_extend(verify).view(len(prefixes), width, *verify.q.shape[1:])
    for step in range(width):
        store = verify.store._replace(lengths=[p + step + 1 for p in prefixes])
        q = verify.q.view(checked.shape)[:, step].contiguous()
        call = make_decode(0, [2], SMOLLM, torch.float32)._replace(store=store, q=q)
        assert float((run_decode(call) - checked[:, step]).abs().max()) < 2e-6


def test_verify_does_not_depend_on_the_batch_in_float32() -> None:
    prefixes = [600, 30, 512, 590]
    call = make_extend(7, prefixes, [4] * 4, SMOLLM, torch.float32)
    together = run_extend(call)
    for b, prefix in enumerate(prefixes):
        store = call.store._replace(rows=call.store.rows[b : b + 1], lengths=[prefix + 4])
        part = slice(4 * b, 4 * b + 4)
        alone = run_extend(call._replace(store=store, q=call.q[part], new=[4]))
        assert float((alone - together[part]).abs().max()) < 1e-6


class _LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Entries of the largest tensor that any operation made."""

    largest = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, torch.Tensor):
                self.largest = max(self.largest, value.untyped_storage().nbytes())
        return result


@pytest.mark.parametrize("cap", [0.0, 30.0])
def test_prefill_makes_no_square_of_its_length(cap: float) -> None:
    """2,000 new tokens on a prefix of 500: masks and scores stay within blocks of queries."""
    call = make_extend(8, [500], [2000], Heads(1, 2, 8, 8), torch.float32, Rules(cap=cap))
    with _LargestTensor() as seen:  # type: ignore[no-untyped-call]
        run_extend(call)
    square = 2000 * 2500 * 4
    assert seen.largest < square


def test_a_tree_mask_of_another_layout_is_refused() -> None:
    call = make_extend(9, [5, 6], [3, 3], SMOLLM, torch.float32)
    full = torch.ones(2, 3, 9, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"54 entries, expected 2 requests \* 3 \* 3"):
        run_extend(call._replace(tree=full))


def test_a_tree_mask_over_unequal_extends_is_refused() -> None:
    call = make_extend(9, [5, 6], [3, 2], SMOLLM, torch.float32, tree=trees(0, 2, 3))
    with pytest.raises(ValueError, match=r"equal extend lengths, got \[3, 2\]"):
        run_extend(call)


@pytest.mark.parametrize("how", ["window", "tree"])
def test_no_causality_with_a_window_or_a_tree_is_refused(how: str) -> None:
    rules = Rules(causal=False, window=5 if how == "window" else 0)
    tree = trees(0, 1, 3) if how == "tree" else None
    call = make_extend(9, [5], [3], SMOLLM, torch.float32, rules, tree)
    with pytest.raises(NotImplementedError, match="extend_attention_cpu: is_causal=False"):
        run_extend(call)


@pytest.mark.parametrize("how", ["is_cross_attn", "encoder_lens"])
def test_cross_attention_is_refused_by_name(how: str) -> None:
    call = make_extend(9, [5], [3], SMOLLM, torch.float32)
    store, lens = call.store, torch.tensor([3]) if how == "encoder_lens" else None
    with pytest.raises(NotImplementedError, match="extend_attention_cpu: cross attention"):
        torch.ops.sgl_kernel.extend_attention_cpu(
            *(call.q, None, None, call.q, store.k, store.v, 1.0, 1.0, store.table, store.rows),
            *(torch.tensor([8]), torch.tensor([3]), torch.tensor([0]), 3, 0.125, 0.0),
            *(how == "is_cross_attn", 0, lens),
        )


def _planted(call: Extend, part: str) -> Extend:
    """The same call with one thing changed."""
    store, tree = call.store, call.tree
    slot = int(store.slots(1)[13])
    if part == "key":
        store.k[slot] *= 400
    elif part == "value":
        store.v[slot] += 2
    elif part == "slot":
        store.table[store.rows[1], 13] = store.table[store.rows[0], 5]
    elif part == "causality":
        return call._replace(rules=call.rules._replace(causal=False))
    elif part == "window":
        return call._replace(rules=call.rules._replace(window=call.rules.window - 1))
    elif tree is not None:
        changed = tree.clone()
        changed[1, 4, 2] = ~changed[1, 4, 2]
        return call._replace(tree=changed)
    return call


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("part", ["key", "value", "slot", "causality", "window", "mask bit"])
def test_control_a_planted_error_is_noticed(dtype: torch.dtype, part: str) -> None:
    """All weights about 1/20, so one wrong row or mask bit moves the result beyond rounding."""
    tree = trees(3, 2, 6) if part == "mask bit" else None
    rules = Rules(window=18 if part == "window" else 0)
    call = make_extend(10, [14, 18], [6, 6], SMOLLM, dtype, rules, tree, flat=True)
    out = run_extend(call)
    assert judge_extend(call, out) <= 1
    assert judge_extend(_planted(call, part), out) > 1
