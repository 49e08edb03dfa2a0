"""Heads of zeros leave the function as it is."""

from __future__ import annotations

import pytest
from sglang_spec.models import embedded_pair, padding
from sglang_spec.models.cache import ModelError
from sglang_spec.models.padding import Heads

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

HEAD_DIM = 16
HIDDEN = 144  # transformers wants a multiple of every head count used here


def random_llama(heads: Heads):
    config = transformers.LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=heads.query,
        num_key_value_heads=heads.kv,
        head_dim=HEAD_DIM,
        vocab_size=50,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize(
    ("old", "new"),
    [("9/3", "12/4"), ("9/3", "24/8"), ("6/2", "16/4"), ("4/4", "8/8"), ("6/3", "16/4")],
)
@torch.no_grad()
def test_same_logits(old: str, new: str) -> None:
    ours, wide = Heads.parse(old), Heads.parse(new)
    small, large = random_llama(ours), random_llama(wide)
    large.load_state_dict(padding.pad_state(small.state_dict(), ours, wide, HEAD_DIM))
    ids = torch.arange(40)[None]
    torch.testing.assert_close(large(ids).logits, small(ids).logits, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_a_query_head_at_the_wrong_kv_head_would_show() -> None:
    ours, wide = Heads(6, 2), Heads(16, 4)
    small, large = random_llama(ours), random_llama(wide)
    naive = padding.pad_state(small.state_dict(), Heads(6, 2), wide, HEAD_DIM)
    for name, weight in small.state_dict().items():
        if name.endswith("q_proj.weight"):
            naive[name] = torch.cat([weight, weight.new_zeros(10 * HEAD_DIM, HIDDEN)])
    large.load_state_dict(naive)
    ids = torch.arange(40)[None]
    assert (large(ids).logits - small(ids).logits).abs().max() > 1e-3


def test_query_heads_keep_their_kv_head() -> None:
    assert padding.query_places(Heads(9, 3), Heads(24, 8)) == list(range(9))
    assert padding.query_places(Heads(4, 2), Heads(12, 3)) == [0, 1, 4, 5]


@pytest.mark.parametrize("new", ["6/2", "8/4"])
def test_too_narrow_is_refused(new: str) -> None:
    with pytest.raises(ModelError, match=f"cannot widen 9/3 to {new} heads"):
        padding.query_places(Heads(9, 3), Heads.parse(new))


@pytest.mark.parametrize("text", ["12", "12/", "a/b", "12/5", "0/0", "-8/4"])
def test_bad_heads_are_refused(text: str) -> None:
    with pytest.raises(ModelError, match="heads"):
        Heads.parse(text)


@pytest.mark.full
@pytest.mark.parametrize("heads", ["12/4", "24/8"])
@torch.no_grad()
def test_the_embedded_target_keeps_its_logits(heads: str) -> None:
    ids = torch.tensor([[1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365]])
    logits = [
        transformers.AutoModelForCausalLM.from_pretrained(pair.target, dtype=torch.float32)(
            ids
        ).logits
        for pair in (embedded_pair(), embedded_pair(heads))
    ]
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-5, atol=1e-4)
