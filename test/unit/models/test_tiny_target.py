"""The tiny target is exact, and one bad key-value row shows."""

from __future__ import annotations

import random

import pytest
from sglang_spec.models import Pair
from sglang_spec.models.tiny import TINY, Oracle, rotary
from sglang_spec.models.tiny.plan import BOS, MAX_POSITIONS, SPECIALS, TARGET_FAULT, VOCABULARY

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

DTYPES = [torch.bfloat16, torch.float32]
ORACLE = Oracle(TINY)
LAYERS = range(TINY.layers)


def prompt(length: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [BOS, *(rng.randrange(SPECIALS, VOCABULARY) for _ in range(length - 1))]


def load(pair: Pair, dtype: torch.dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(pair.target, dtype=dtype).eval()


@pytest.fixture(scope="module")
def target(tiny: Pair):
    return load(tiny, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.no_grad()
def test_logits_are_the_oracles(tiny: Pair, dtype: torch.dtype) -> None:
    model = load(tiny, dtype)
    for length, stride in ((1, 1), (2, 1), (40, 1), (1500, 37)):
        ids = prompt(length, length)
        got = model(torch.tensor([ids])).logits[0].float()
        for at in {*range(0, length, stride), length - 1}:
            want = torch.tensor(ORACLE.logits(ids[: at + 1]))
            # bf16 has a spacing of 0.25 at the best logit; the margin to the second is 8.
            torch.testing.assert_close(got[at], want, rtol=0, atol=1e-4)


@torch.no_grad()
def test_cached_decode_follows_the_oracle(target) -> None:
    ids = prompt(200, 1)
    out = target(torch.tensor([ids]), use_cache=True)
    for want in ORACLE.greedy(ids, 20):
        assert int(out.logits[0, -1].argmax()) == want
        out = target(torch.tensor([[want]]), past_key_values=out.past_key_values, use_cache=True)


@torch.no_grad()
def decode(target, ids: list[int], damage, count: int = 1) -> list[int]:
    """Caches all but the last token, damages the cache, and decodes greedily."""
    cache = target(torch.tensor([ids[:-1]]), use_cache=True).past_key_values
    damage([layer.keys for layer in cache.layers], [layer.values for layer in cache.layers])
    tokens = [ids[-1]]
    for _ in range(count):
        out = target(torch.tensor([tokens[-1:]]), past_key_values=cache, use_cache=True)
        tokens.append(int(out.logits[0, -1].argmax()))
    return tokens[1:]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("row", [0, 1, 77, 240, 298])
def test_a_zeroed_row_shows_at_once(target, layer: int, row: int) -> None:
    def damage(keys, values) -> None:
        keys[layer][:, :, row] = 0
        values[layer][:, :, row] = 0

    assert decode(target, prompt(300, 2), damage) == [TARGET_FAULT]


@pytest.mark.parametrize("head", range(8))
def test_a_zeroed_row_of_one_head_shows_at_once(target, head: int) -> None:
    """What one rank of tensor parallel 8 holds."""

    def damage(keys, values) -> None:
        keys[head % TINY.layers][:, head, 100 + head] = 0
        values[head % TINY.layers][:, head, 100 + head] = 0

    assert decode(target, prompt(300, 3), damage) == [TARGET_FAULT]


@pytest.mark.parametrize("back", [1, 2, 3, 4])
def test_a_recent_row_of_another_token_shows_soon(target, back: int) -> None:
    """A rejected draft's row left in the place of an accepted token's."""
    ids = prompt(120, 4)
    at = len(ids) - 1 - back
    wrong = [*ids[:at], ids[at] ^ 1, *ids[at + 1 :]]
    with torch.no_grad():
        other = target(torch.tensor([wrong[:-1]]), use_cache=True).past_key_values

    def damage(keys, values) -> None:
        for layer, source in enumerate(other.layers):
            keys[layer][:, :, at] = source.keys[:, :, at]
            values[layer][:, :, at] = source.values[:, :, at]

    assert decode(target, ids, damage, 3) != ORACLE.greedy(ids, 3)


def test_rows_shifted_by_one_show_at_once(target) -> None:
    def damage(keys, values) -> None:
        for tensors in (keys, values):
            for tensor in tensors:
                tensor[:, :, 1:] = tensor[:, :, :-1].clone()

    ids = prompt(120, 5)
    assert decode(target, ids, damage) != ORACLE.greedy(ids, 1)


SHARDS = {
    "self_attn.q_proj": 0,
    "self_attn.k_proj": 0,
    "self_attn.v_proj": 0,
    "self_attn.o_proj": 1,
    "mlp.gate_proj": 0,
    "mlp.up_proj": 0,
    "mlp.down_proj": 1,
}


@pytest.mark.parametrize("rank", range(8))
@torch.no_grad()
def test_a_missing_shard_of_any_matrix_shows_at_once(target, rank: int) -> None:
    """The part of each matrix that one of eight ranks holds, zeroed, one matrix at a time."""
    ids = torch.tensor([prompt(60, 8)])
    for layer in target.model.layers:
        for name, axis in SHARDS.items():
            shard = layer.get_submodule(name).weight.chunk(8, axis)[rank]
            kept = shard.clone()
            shard.zero_()
            assert int(target(ids).logits[0, -1].argmax()) == TARGET_FAULT, name
            shard.copy_(kept)
    assert int(target(ids).logits[0, -1].argmax()) == ORACLE.next_token(ids[0].tolist())


@torch.no_grad()
def test_each_layer_leaves_its_mark(target) -> None:
    from sglang_spec.models.tiny.stream import ONES, target_stream

    stream = target_stream(TINY)
    states = target.model(torch.tensor([prompt(30, 6)]), output_hidden_states=True).hidden_states
    for depth, state in enumerate(states[:-1]):  # the last is normed
        marks = [int(state[0, 5, stream("depth", i)]) for i in range(TINY.layers + 1)]
        assert marks == [int(i == depth) for i in range(TINY.layers + 1)]
        # Within a rounding of softmax: every norm scales by exactly two.
        torch.testing.assert_close(
            state[0].float().square().sum(-1), torch.full((30,), float(ONES))
        )


def test_scores_are_far_apart() -> None:
    """The second-best position of a read scores this much less than the right one."""
    gap, sink = rotary.gap(MAX_POSITIONS), rotary.MATCH - rotary.SINK
    assert gap > 55
    # Worst case of q, k and the rotation all rounded to bf16, every product in the same direction.
    rounding = 3 * 2**-9 * (2 * rotary.PEAK - rotary.MATCH)
    assert 8 * rounding < sink < gap - 8 * rounding
