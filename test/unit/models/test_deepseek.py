"""The tiny DeepSeek and Kimi checkpoints: packed weights, tensors, and what the contract says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
from kit import deepseek_reference
from kit.checkpoints import Config, Tensors, copy
from kit.deepseek import NEAR
from kit.faults import IDS
from safetensors.torch import load_file
from sglang_spec.hardening.contract import Report, Settings, check_pair
from sglang_spec.models import ModelError
from sglang_spec.models.deepseek import PLANS, deepseek_pair, int4
from sglang_spec.models.deepseek.plan import (
    DRAFTS,
    EXPERTS,
    GROUP,
    LAYERS,
    LOOPS,
    Plan,
)
from sglang_spec.models.tiny.plan import SPECIALS, VOCABULARY

TARGET_BYTES = 60_000_000
EVERY = [(target, draft) for target in PLANS for draft in DRAFTS]


def test_packing_is_that_of_compressed_tensors() -> None:
    dice = torch.Generator().manual_seed(1)
    made = int4.random_weights(48, 128, GROUP, 0.05, dice)
    packed = made.packed()
    assert torch.equal(packed["weight_packed"], pack_to_int32(made.values, 4))
    shape = torch.Size(packed["weight_shape"].tolist())
    assert torch.equal(unpack_from_int32(packed["weight_packed"], 4, shape), made.values)
    assert packed["weight_scale"].shape == (48, 128 // GROUP)


def test_plain_weights_are_exact_and_of_the_size_asked_for() -> None:
    made = int4.random_weights(256, 256, GROUP, 0.06, torch.Generator().manual_seed(2))
    exact = made.values.double().reshape(256, -1, GROUP) * made.scales.double()[:, :, None]
    assert torch.equal(made.plain().double(), exact.reshape(256, 256))
    assert 0.03 < made.plain().float().std() < 0.12
    assert made.values.min() == -7 and made.values.max() == 7


def test_int4_and_plain_targets_are_the_same_function() -> None:
    for family in ("kimi", "deepseek"):
        packed = deepseek_reference.plain_state(deepseek_pair(family).target)
        plain = deepseek_reference.plain_state(deepseek_pair(f"{family}-bfloat16").target)
        assert packed.keys() == plain.keys()
        assert all(torch.equal(packed[name], plain[name]) for name in plain)


@pytest.mark.parametrize("name", PLANS)
def test_target_holds_what_the_published_ones_hold(name: str) -> None:
    target = deepseek_pair(name).target
    size = sum(path.stat().st_size for path in target.iterdir())
    assert size < TARGET_BYTES
    names = set(load_file(target / "model.safetensors"))
    prefix = "language_model." if name.startswith("kimi") else ""
    expert = f"{prefix}model.layers.{LAYERS - 1}.mlp.experts.{EXPERTS - 1}.down_proj."
    suffixes = {"weight"} if name.endswith("bfloat16") else {f"weight_{k}" for k in _PACKED}
    assert {one.removeprefix(expert) for one in names if one.startswith(expert)} == suffixes
    assert ("vision_tower.patch_embed.proj.weight" in names) == name.startswith("kimi")
    assert f"{prefix}model.layers.0.mlp.gate_proj.weight" in names, "the first layer is dense"


_PACKED = ("packed", "scale", "shape")


def test_only_experts_are_quantized() -> None:
    config = json.loads((deepseek_pair("kimi").target / "config.json").read_text())
    held: dict[str, Any] = config["text_config"]["quantization_config"]
    (group,) = held["config_groups"].values()
    assert held["format"] == "pack-quantized" and group["weights"]["group_size"] == GROUP
    assert group["weights"]["symmetric"] is True and group["input_activations"] is None
    kinds = {
        name: tensor.dtype
        for name, tensor in load_file(deepseek_pair("kimi").target / "model.safetensors").items()
    }
    packed = {name for name, kind in kinds.items() if kind == torch.int32}
    assert packed and all(".mlp.experts." in name for name in packed)


def test_a_plan_says_what_follows() -> None:
    plan = PLANS["kimi"]
    assert sorted(plan.chain) == list(range(SPECIALS, VOCABULARY))
    answer = plan.greedy([0, 77], 256)
    assert len(set(answer)) == 256 and answer[-1] == 77, "one cycle through every ordinary token"
    assert not any(plan.successors[t] == t for t in range(SPECIALS, VOCABULARY))
    with pytest.raises(ModelError, match="families are kimi, deepseek"):
        Plan("llama")


def test_reference_answers_what_the_plan_says() -> None:
    for name in ("kimi", "deepseek"):
        built = deepseek_reference.model(deepseek_pair(name).target)
        tokens = list(range(SPECIALS, VOCABULARY, 3))
        with torch.no_grad():
            logits = built(torch.tensor([tokens])).logits[0]
        best = logits.topk(2).values
        assert logits.argmax(-1).tolist() == [PLANS[name].successors[t] for t in tokens]
        # Far above what bfloat16 rounds: 1 part in 256, over six layers.
        assert ((best[:, 0] - best[:, 1]) / best[:, 0]).min() > 0.1


@pytest.mark.parametrize("name", ["kimi", "deepseek"])
def test_states_show_experts_that_are_wrong(name: str) -> None:
    """What `kit.deepseek.check_states` allows is far under what a wrong expert does to a state."""
    built = deepseek_reference.model(deepseek_pair(name).target)
    asked = torch.tensor([list(range(SPECIALS, SPECIALS + 40))])

    def states() -> torch.Tensor:
        with torch.no_grad():
            return built(asked, output_hidden_states=True).hidden_states[LAYERS - 1][0]

    right = states()
    for change in (lambda held: held.mul_(0.5), lambda held: held.copy_(held.roll(1, 0))):
        kept = built.model.layers[LAYERS - 2].mlp.experts.down_proj.detach().clone()
        change(built.model.layers[LAYERS - 2].mlp.experts.down_proj.data)
        wrong = states()
        built.model.layers[LAYERS - 2].mlp.experts.down_proj.data.copy_(kept)
        error = ((wrong - right).norm(dim=-1) / right.norm(dim=-1)).median()
        assert error > 3 * NEAR, f"one layer's experts, and the state moves by {error:.3f} only"


@pytest.mark.parametrize(("target", "draft"), EVERY)
def test_right_pairs_are_accepted(target: str, draft: str) -> None:
    pair = deepseek_pair(target, draft)
    for tp_size in (1, 2, 8):
        report = _check(pair.target, pair.draft, tp_size=tp_size)
        assert report.accepted, report.error_text()
        assert [slot.loop_index for slot in report.slots] == list(LOOPS)
        # The MLA drafts write loop indices, as the published ones do; the Llama ones write layers.
        ambiguous = ["ids-ambiguous"] if draft == "mla" else []
        assert [warning.code for warning in report.warnings] == ambiguous


def _check(target: Path, draft: Path, **settings: Any) -> Report:
    return check_pair(target, draft, Settings(context_length=4096, **settings))


def _ids(*ids: int) -> Any:
    def edit(config: Config) -> None:
        config["eagle_config"][IDS] = list(ids)

    return edit


FAULTS = {
    "embedding": ("mla", _ids(0, 2, 4), "ids-embedding"),
    "last layer": ("mla", _ids(2, 3, 6), "ids-last-layer"),
    "last layer, written as layers": ("llama", _ids(1, 2, 5), "ids-last-layer"),
    "out of order": ("mla", _ids(3, 2, 5), "ids-order"),
    "two layers": ("llama", _ids(1, 4), "ids-count"),
    "hidden size": ("mla", lambda c: c.update(target_hidden_size=512), "hidden-size"),
    "latent": ("mla", lambda c: c.update(kv_lora_rank=256), "tensor-shape"),
    "no query rank": ("mla", lambda c: c.pop("q_lora_rank"), "config-unreadable"),
    "heads": ("llama", lambda c: c.update(num_attention_heads=4), "tensor-shape"),
    "another class": (
        "mla",
        lambda c: c.update(architectures=["LlamaForCausalLMEagle3"]),
        "tensor-missing",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault: str, tmp_path: Path) -> None:
    style, edit, code = FAULTS[fault]
    pair = deepseek_pair("kimi", style)
    report = _check(pair.target, copy(pair.draft, tmp_path / "draft", edit))
    assert code in [problem.code for problem in report.problems], report.error_text()


def test_a_missing_latent_projection_is_named(tmp_path: Path) -> None:
    pair = deepseek_pair("kimi", "mla")

    def edit(tensors: Tensors) -> None:
        del tensors["layers.0.self_attn.kv_b_proj.weight"]

    draft = copy(pair.draft, tmp_path / "draft", None, edit)
    (problem,) = _check(pair.target, draft).problems
    assert problem.code == "tensor-missing" and "kv_b_proj" in problem.key


def test_the_targets_int4_is_not_the_drafts() -> None:
    """A target says itself how it is quantised; only a flag is passed on to the draft."""
    pair = deepseek_pair("kimi", "mla")
    given = _check(pair.target, pair.draft, quantization="compressed-tensors")
    assert [problem.code for problem in given.problems] == ["quantization-inherited"]
    plain = _check(
        pair.target,
        pair.draft,
        quantization="compressed-tensors",
        draft_quantization="unquant",
    )
    assert plain.accepted
