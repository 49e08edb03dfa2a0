"""What a tiny pair looks like on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sglang_spec.models import Pair, alter, cache
from sglang_spec.models.tiny import TINY, TINY_HALF, Plan, build, tiny_pair, tokenizer
from sglang_spec.models.tiny.plan import BOS, SPECIALS, TARGET_FAULT, UNKNOWN, VOCABULARY

pytest.importorskip("torch")
load_file = pytest.importorskip("safetensors.torch").load_file


def hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): cache.file_sha256(path) for path in files}


def test_the_same_plan_gives_the_same_bytes(tiny: Pair, tmp_path: Path) -> None:
    build.build(TINY, tmp_path)
    assert hashes(tmp_path) == hashes(tiny.target.parent)


def test_another_seed_gives_other_weights(tiny: Pair, tmp_path: Path) -> None:
    build.build(Plan(seed=1), tmp_path)
    ours, theirs = hashes(tmp_path), hashes(tiny.target.parent)
    same = {name for name in ours if ours[name] == theirs[name]}
    assert not {"target/model.safetensors", "draft/model.safetensors"} & same


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("plan", [TINY, TINY_HALF], ids=["tiny", "half"])
def test_both_models_divide(plan: Plan, ranks: int) -> None:
    pair = tiny_pair(plan)
    for folder in (pair.target, pair.draft):
        config = json.loads((folder / "config.json").read_text())
        for key in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
            assert config[key] % ranks == 0
        for key in ("vocab_size", "draft_vocab_size"):
            # Upstream rounds up to a multiple of 64 first, and needs nothing else.
            assert config.get(key, VOCABULARY) % 64 == 0


def test_config_and_tensors_agree(tiny: Pair) -> None:
    config = json.loads((tiny.draft / "config.json").read_text())
    state = load_file(tiny.draft / "model.safetensors")
    ids = config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    target = json.loads((tiny.target / "config.json").read_text())
    assert state["fc.weight"].shape == (config["hidden_size"], len(ids) * target["hidden_size"])
    assert max(ids) == target["num_hidden_layers"] - 2
    assert len(state["lm_head.weight"]) == config["draft_vocab_size"] == VOCABULARY
    assert not {"d2t", "t2d"} & state.keys()


def test_the_half_vocabularys_map() -> None:
    state = load_file(tiny_pair(TINY_HALF).draft / "model.safetensors")
    ids = [index + step for index, step in enumerate(state["d2t"].tolist())]
    assert ids == list(TINY_HALF.draft_tokens)
    assert state["t2d"].nonzero().flatten().tolist() == ids


def test_text_and_ids_tell_the_same(tiny: Pair) -> None:
    loaded = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tiny.target)
    words = tokenizer.words()
    assert len(loaded) == len(words) == len(set(words)) == VOCABULARY
    assert loaded("t0 t255 hello")["input_ids"] == [BOS, SPECIALS, VOCABULARY - 1, UNKNOWN]
    ids = [SPECIALS + 3, TARGET_FAULT, VOCABULARY - 1]
    assert loaded.decode(ids, skip_special_tokens=True) == "t3 <target-fault> t255"


def test_a_chat_begins_with_the_only_bos(tiny: Pair) -> None:
    loaded = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tiny.target)
    messages = [{"role": "user", "content": "t1 t2"}, {"role": "assistant", "content": "t3"}]
    text = loaded.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<bos> <user> t1 t2 <end> <assistant> t3 <end> <assistant>"
    ids = loaded(text, add_special_tokens=False)["input_ids"]
    assert ids[0] == BOS
    assert BOS not in ids[1:]
    assert UNKNOWN not in ids


def test_altered_copies(tiny: Pair, tmp_path: Path) -> None:
    def zero(state: dict) -> None:
        state["fc.weight"].zero_()

    broken = alter.altered(
        tiny.draft, tmp_path / "broken", config={"torch_dtype": None}, change=zero
    )
    assert not load_file(broken / "model.safetensors")["fc.weight"].any()
    assert "torch_dtype" not in json.loads((broken / "config.json").read_text())
    moved = alter.with_capture(tiny.draft, tmp_path / "moved", [0, 3, 5])
    eagle = json.loads((moved / "config.json").read_text())["eagle_config"]
    assert eagle["eagle_aux_hidden_state_layer_ids"] == [0, 3, 5]
    assert load_file(tiny.draft / "model.safetensors")["fc.weight"].any()
