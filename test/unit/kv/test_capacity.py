"""Bytes of KV by a pair's configs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sglang.srt.spec_hardening.kv.capacity import CapacityUnknown, Cost, cost, layer_bytes
from sglang_spec.models import tiny_pair

LLAMA = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
}
MLA = {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
DRAFT = {"num_hidden_layers": 1, "num_attention_heads": 64, "head_dim": 128}


def test_attention_and_mla() -> None:
    assert layer_bytes(LLAMA, 1, 2) == 2 * 8 * 128 * 2
    assert layer_bytes(LLAMA, 16, 2) == 2 * 1 * 128 * 2  # heads are copied, never split
    assert layer_bytes(MLA, 8, 2) == 576 * 2  # every rank holds it whole
    assert layer_bytes(DRAFT, 8, 1) == 2 * 8 * 128


def test_a_draft_of_another_kind_is_not_what_upstream_budgets() -> None:
    found = cost({"text_config": MLA}, DRAFT, ranks=8)
    assert found == Cost(target=61 * 1152, draft=4096, budgeted=1152)
    same = cost(LLAMA, LLAMA | {"num_hidden_layers": 1})
    assert same.draft == same.budgeted == same.target // 32


def test_tokens_are_whole_pages() -> None:
    found = Cost(target=96, draft=4, budgeted=4)
    assert found.tokens(100 * 1000, 16) == 992
    assert found.without(96 * 1000, 16) == 992
    assert found.taken(992, 16) == 1008 * 100


@pytest.mark.parametrize(
    "config", [LLAMA | {"sliding_window": 4096}, {"num_hidden_layers": 2}, {"index_topk": 2048}]
)
def test_what_is_not_known_is_said(config: dict[str, Any]) -> None:
    with pytest.raises(CapacityUnknown):
        layer_bytes(config, 1, 2)


def test_the_tiny_pair() -> None:
    pair = tiny_pair()
    configs = [json.loads((p / "config.json").read_text()) for p in (pair.target, pair.draft)]
    assert cost(*configs) == Cost(14336, 2048, 2048)
