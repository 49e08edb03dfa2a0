"""`decode_attention_cpu` against float64 loops. For the tolerance see `inputs.tolerance`."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unit.sgl_kernel.attention_calls import (
    DTYPES,
    Heads,
    Rules,
    judge_decode,
    make_decode,
    run_decode,
)
from unit.sgl_kernel.inputs import generator, quick

SMOLLM = Heads(3, 3, 64, 64)

heads = st.builds(
    lambda kv, group, dim: Heads(kv, group, dim, dim),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([8, 16, 32]),
)
seeds = st.integers(0, 2**31)


@quick(80)
@given(
    seeds,
    st.lists(st.integers(1, 80), min_size=1, max_size=8),
    heads,
    st.sampled_from(DTYPES),
    st.sampled_from([0, 1, 5, 33]),
    st.sampled_from([0.0, 2.0]),
    st.booleans(),
    st.booleans(),
)
def test_decode_equals_reference(
    seed: int,
    ends: list[int],
    shape: Heads,
    dtype: torch.dtype,
    window: int,
    cap: float,
    has_sinks: bool,
    stored: bool,
) -> None:
    sinks = torch.randn(shape.query, generator=generator(seed)) if has_sinks else None
    call = make_decode(seed, ends, shape, dtype, Rules(window, cap, sinks))
    assert judge_decode(call, run_decode(call, stored)) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ends", [[700], [300, 1200, 310, 40, 1190]], ids=["one", "unequal"])
def test_long_contexts(dtype: torch.dtype, ends: list[int]) -> None:
    """Beyond the kernel's key block of 512, and lengths that fall into several groups."""
    call = make_decode(1, ends, SMOLLM, dtype)
    assert judge_decode(call, run_decode(call)) <= 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_narrower_than_keys(dtype: torch.dtype) -> None:
    call = make_decode(2, [30, 9], Heads(2, 2, 24, 16), dtype)
    assert judge_decode(call, run_decode(call)) <= 1


def test_result_does_not_depend_on_the_batch() -> None:
    """float32: a request alone, and among longer and shorter ones. The difference is bounded by
    the order of summation over at most 600 keys of size about 1: far below 1e-6 of the result."""
    ends = [600, 37, 512, 64, 590]
    call = make_decode(3, ends, SMOLLM, torch.float32)
    together = run_decode(call)
    for b in range(len(ends)):
        row = call.store.rows[b : b + 1]
        single = call.store._replace(rows=row, lengths=[ends[b]])
        alone = run_decode(call._replace(store=single, q=call.q[b : b + 1]))
        assert float((alone - together[b : b + 1]).abs().max()) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bit_cache_is_restored_by_its_scales(dtype: torch.dtype) -> None:
    call = make_decode(4, [20, 33], SMOLLM, torch.float32)
    k8, v8 = call.store.k.to(dtype), call.store.v.to(dtype)
    out = run_decode(call._replace(store=call.store._replace(k=k8, v=v8)), True, (0.5, 3.0))
    restored = call.store._replace(k=k8.float() * 0.5, v=v8.float() * 3.0)
    assert judge_decode(call._replace(store=restored), out) <= 1


def test_new_rows_are_stored_into_an_eight_bit_cache() -> None:
    call = make_decode(4, [20, 33], SMOLLM, torch.float32)
    eight = call.store._replace(
        k=call.store.k.to(torch.float8_e4m3fn), v=call.store.v.to(torch.float8_e4m3fn)
    )
    rounded = eight._replace(k=eight.k.float(), v=eight.v.float())
    slots = torch.stack([eight.slots(b)[-1] for b in range(2)])
    k, v = rounded.k[slots], rounded.v[slots]
    eight.k.view(torch.uint8)[slots] = 0
    out = torch.empty_like(call.q)
    torch.ops.sgl_kernel.decode_attention_cpu(
        *(call.q, eight.k, eight.v, 1.0, 1.0, out, k, v, slots.int(), None),
        *(eight.table, eight.rows, torch.tensor(eight.lengths), 0.125, 0.0, False, 0),
    )
    assert judge_decode(call._replace(store=rounded), out) <= 1


def test_scales_do_not_touch_a_wide_cache() -> None:
    call = make_decode(5, [20], SMOLLM, torch.float32)
    assert torch.equal(run_decode(call, scales=(0.5, 3.0)), run_decode(call))


def test_flattened_keys_and_int32_indices() -> None:
    call = make_decode(6, [12, 15], SMOLLM, torch.bfloat16)
    store = call.store
    loc = torch.stack([store.slots(b)[-1] for b in range(2)])
    out = torch.empty_like(call.q)
    torch.ops.sgl_kernel.decode_attention_cpu(
        *(call.q, store.k, store.v, 1.0, 1.0, out),
        *(store.k[loc].flatten(1), store.v[loc].flatten(1), loc.int(), torch.empty(0)),
        *(store.table, store.rows.int(), torch.tensor(store.lengths, dtype=torch.int32)),
        *(0.125, 0.0, False, 0, None, None),
    )
    assert judge_decode(call, out) <= 1


def test_queries_may_be_a_slice_of_a_wider_projection() -> None:
    call = make_decode(7, [12, 15, 14], SMOLLM, torch.bfloat16)
    wide = torch.cat((call.q.flatten(1), torch.zeros(3, 100, dtype=call.q.dtype)), 1)
    view = wide[:, : call.q[0].numel()].view(3, *call.q.shape[1:])
    assert not view.is_contiguous()
    assert torch.equal(run_decode(call._replace(q=view)), run_decode(call))


def test_an_empty_batch_does_nothing() -> None:
    call = make_decode(8, [5], SMOLLM, torch.float32)
    none = torch.empty(0, dtype=torch.int64)
    torch.ops.sgl_kernel.decode_attention_cpu(
        *(call.q[:0], call.store.k, call.store.v, 1.0, 1.0, call.q[:0], None, None, none, None),
        *(call.store.table, none, none, 0.125, 0.0, False, 0),
    )


@pytest.mark.parametrize("how", ["is_cross_attn", "encoder_lens"])
def test_cross_attention_is_refused_by_name(how: str) -> None:
    call = make_decode(9, [5], SMOLLM, torch.float32)
    lens = torch.tensor([3]) if how == "encoder_lens" else None
    with pytest.raises(NotImplementedError, match="decode_attention_cpu: cross attention"):
        torch.ops.sgl_kernel.decode_attention_cpu(
            *(call.q, call.store.k, call.store.v, 1.0, 1.0, call.q, None, None, None, None),
            *(call.store.table, call.store.rows, torch.tensor([5]), 0.125, 0.0),
            *(how == "is_cross_attn", 0, lens, None),
        )


def test_keys_without_slots_are_refused() -> None:
    call = make_decode(9, [5], SMOLLM, torch.float32)
    k = call.store.k[:1]
    with pytest.raises(ValueError, match="loc is None"):
        torch.ops.sgl_kernel.decode_attention_cpu(
            *(call.q, call.store.k, call.store.v, 1.0, 1.0, call.q, k, k, None, None),
            *(call.store.table, call.store.rows, torch.tensor([5]), 0.125, 0.0, False, 0),
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("part", ["key", "value", "slot", "length", "window", "sink"])
def test_control_a_planted_error_is_noticed(dtype: torch.dtype, part: str) -> None:
    """All weights about 1/20, so a single wrong row moves the result by far more than rounding."""
    rules = Rules(window=20, sinks=torch.zeros(SMOLLM.query))
    call = make_decode(10, [24, 30], SMOLLM, dtype, rules, flat=True)
    out = run_decode(call)
    assert judge_decode(call, out) <= 1
    store = call.store
    slot = int(store.slots(1)[17])
    if part == "key":
        store.k[slot] *= 400
    elif part == "value":
        store.v[slot] += 2
    elif part == "slot":
        store.table[store.rows[1], 17] = store.table[store.rows[0], 5]
    elif part == "length":
        call = call._replace(store=store._replace(lengths=[24, 29]))
    elif part == "window":
        call = call._replace(rules=rules._replace(window=19))
    else:
        call = call._replace(rules=rules._replace(sinks=torch.ones(SMOLLM.query) * 2))
    assert judge_decode(call, out) > 1
