"""Pairs that look unusual and are right: accepted, with the slots upstream really fills."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit import hollow
from kit.checkpoints import Tensors, copy, read_tensors, write_tensors
from kit.faults import IDS
from kit.hollow import llama_shapes
from kit.public_drafts import KNOWN, Known
from sglang_spec.hardening.contract import Report, Settings, check_pair
from sglang_spec.models.pair import Pair


def _loops(report: Report) -> list[int]:
    assert report.accepted, report.error_text()
    return [slot.loop_index for slot in report.slots]


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_published_draft_is_accepted(known: Known, tmp_path: Path) -> None:
    target = hollow.write(tmp_path / "target", known.target, {})
    draft = hollow.write(tmp_path / "draft", known.draft, known.shapes)
    report = check_pair(target, draft, Settings(**known.settings))
    assert _loops(report) == list(known.loops)
    assert [warning.code for warning in report.warnings] == list(known.warns)
    for slot in report.slots:
        assert slot.takes == f"output of layer {slot.loop_index - 1}"


def test_kimi_warning_says_what_to_write(tmp_path: Path) -> None:
    kimi = KNOWN[0]
    target = hollow.write(tmp_path / "target", kimi.target, {})
    meant = dict(kimi.draft) | {"eagle_config": {IDS: [3, 31, 59]}}
    draft = hollow.write(tmp_path / "draft", kimi.draft, kimi.shapes)
    warning = check_pair(target, draft, Settings(**kimi.settings)).warnings[0]
    assert "outputs of layers 1, 29, 57" in warning.remedy
    assert "write [3, 31, 59]" in warning.remedy
    other = hollow.write(tmp_path / "other", meant, kimi.shapes)
    report = check_pair(target, other, Settings(**kimi.settings))
    assert [slot.takes for slot in report.slots] == [f"output of layer {n}" for n in (2, 30, 58)]


def test_ids_at_top_level_only(tiny: Pair, tmp_path: Path) -> None:
    def edit(config: dict[str, object]) -> None:
        del config["eagle_config"]
        config[IDS] = [1, 3, 5]

    assert _loops(check_pair(tiny.target, copy(tiny.draft, tmp_path / "d", edit))) == [2, 4, 6]


def test_no_eagle_config_takes_the_default_and_says_so(tiny: Pair, tmp_path: Path) -> None:
    draft = copy(tiny.draft, tmp_path / "d", lambda config: config.pop("eagle_config"))
    report = check_pair(tiny.target, draft)
    assert _loops(report) == [2, 3, 4]
    assert "names no layers; the default" in report.notes[0]
    assert "output of layer 1, output of layer 2, output of layer 3" in report.notes[0]


def test_names_with_and_without_the_model_prefix(tiny: Pair, tmp_path: Path) -> None:
    def edit(tensors: Tensors) -> None:
        for name in list(tensors):
            if not name.startswith("lm_head"):
                plain = name.removeprefix("model.").replace("midlayer", "layers.0")
                tensors[f"model.{plain}"] = tensors.pop(name)

    assert _loops(check_pair(tiny.target, copy(tiny.draft, tmp_path / "d", None, edit)))


def test_sharded_checkpoint(tiny: Pair, tmp_path: Path) -> None:
    draft = copy(tiny.draft, tmp_path / "d")
    tensors = read_tensors(draft / "model.safetensors")
    (draft / "model.safetensors").unlink()
    halves = [dict(list(tensors.items())[::2]), dict(list(tensors.items())[1::2])]
    names = {}
    for number, half in enumerate(halves, 1):
        file = f"model-0000{number}-of-00002.safetensors"
        write_tensors(draft / file, half)
        names |= dict.fromkeys(half, file)
    (draft / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert _loops(check_pair(tiny.target, draft)) == [2, 4, 6]


def test_bin_weights_are_read_without_running_them(tiny_half: Pair, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    draft = copy(tiny_half.draft, tmp_path / "d")
    state = load_file(draft / "model.safetensors")
    (draft / "model.safetensors").unlink()
    torch.save(state, draft / "pytorch_model.bin")
    assert _loops(check_pair(tiny_half.target, draft)) == [2, 4, 6]
    state["d2t"][0] = 9999
    torch.save(state, draft / "pytorch_model.bin")
    assert check_pair(tiny_half.target, draft).problems[0].code == "d2t-range"


def test_head_taken_from_the_target(tmp_path: Path) -> None:
    qwen = KNOWN[6]
    target = hollow.write(tmp_path / "target", qwen.target, {})
    config = dict(qwen.draft) | {"draft_vocab_size": None}
    shapes = llama_shapes(4096, 32, 8, 128, 12288, None)
    assert _loops(check_pair(target, hollow.write(tmp_path / "draft", config, shapes)))


def test_draft_of_another_width_with_its_own_embedding(tmp_path: Path) -> None:
    qwen = KNOWN[6]
    target = hollow.write(tmp_path / "target", qwen.target, {})
    config = dict(qwen.draft) | {"hidden_size": 2048, "target_hidden_size": 4096}
    shapes = llama_shapes(2048, 32, 8, 128, 12288, 32000, target_hidden=4096)
    draft = hollow.write(tmp_path / "draft", config, shapes)
    assert check_pair(target, draft).problems[0].key == "embed_tokens.weight"
    hollow.write(draft, config, shapes | {"embed_tokens.weight": (151936, 2048)})
    assert _loops(check_pair(target, draft)) == [2, 18, 33]


def test_one_two_and_four_layers(tmp_path: Path) -> None:
    qwen = KNOWN[6]
    target = hollow.write(tmp_path / "target", qwen.target, {})
    for ids in ([5, 30], [1, 9, 18, 27]):
        config = dict(qwen.draft) | {"eagle_config": {IDS: ids}}
        shapes = llama_shapes(4096, 32, 8, 128, 12288, 32000, slots=len(ids))
        report = check_pair(target, hollow.write(tmp_path / str(len(ids)), config, shapes))
        assert _loops(report) == [entry + 1 for entry in ids]


def test_hub_id_is_found_in_the_local_cache(
    tiny: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert check_pair(tiny.target, "some/draft").problems[0].code == "draft-not-found"
    repository = tmp_path / "models--some--draft"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text("abc123")
    copy(tiny.draft, repository / "snapshots/abc123")
    assert _loops(check_pair(tiny.target, "some/draft")) == [2, 4, 6]
    wrong = Settings(draft_revision="other")
    assert check_pair(tiny.target, "some/draft", wrong).problems[0].code == "draft-not-found"


def test_quantized_draft_is_compared_by_name_only(tiny: Pair, tmp_path: Path) -> None:
    def edit(tensors: Tensors) -> None:
        for name in list(tensors):
            if name.endswith("q_proj.weight"):
                tensors[name.replace("weight", "weight_packed")] = tensors[name].columns(64)

    def config(held: dict[str, object]) -> None:
        held["quantization_config"] = {"quant_method": "compressed-tensors"}

    draft = copy(tiny.draft, tmp_path / "d", config, edit)
    settings = Settings(quantization="compressed-tensors")
    assert _loops(check_pair(tiny.target, draft, settings)) == [2, 4, 6]


def test_draft_without_captured_layers(tmp_path: Path) -> None:
    qwen = KNOWN[6]
    target = hollow.write(tmp_path / "target", qwen.target, {})
    config = dict(qwen.draft) | {"eagle_config": {"use_aux_hidden_state": False}}
    shapes = llama_shapes(4096, 32, 8, 128, 12288, 32000)
    del shapes["fc.weight"]
    report = check_pair(target, hollow.write(tmp_path / "draft", config, shapes))
    assert report.accepted, report.error_text()
    assert [slot.takes for slot in report.slots] == ["last hidden state"]
