"""The converter, on a small GGUF made here, and the real model's answer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sglang_spec.models import Pair, smollm2
from sglang_spec.models.cache import ModelError

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER = 4, 2, 8, 32, 48
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "ab", "1", "Ġ"]


def make_gguf(path: Path, *, architecture: str = "llama", extra: str | None = None) -> dict:
    """Writes a one-layer random Llama; returns its tensors by GGUF name."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3, 1, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    for role, index in (("bos", 1), ("eos", 2), ("unk", 0), ("pad", 2)):
        getattr(writer, f"add_{role}_token_id")(index)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    rng = np.random.default_rng(0)
    shapes = {
        "token_embd": (len(TOKENS), HIDDEN),
        "output_norm": (HIDDEN,),
        "blk.0.attn_norm": (HIDDEN,),
        "blk.0.ffn_norm": (HIDDEN,),
        "blk.0.attn_q": (HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
        "blk.0.attn_output": (HIDDEN, HEADS * HEAD_DIM),
        "blk.0.ffn_gate": (INNER, HIDDEN),
        "blk.0.ffn_up": (INNER, HIDDEN),
        "blk.0.ffn_down": (HIDDEN, INNER),
    }
    if extra is not None:
        shapes[extra] = (HIDDEN,)
    tensors = {f"{n}.weight": rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def test_half_split_puts_first_rows_of_pairs_first() -> None:
    # Two heads of four rows: pairs (0, 1), (2, 3) become halves (0, 2), (1, 3).
    rows = np.arange(8.0)[:, None]
    assert smollm2.half_split(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_converted_folder_computes_and_tokenizes(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    import torch

    tensors = make_gguf(tmp_path / "model.gguf")
    folder = tmp_path / "model"
    folder.mkdir()
    smollm2.convert(tmp_path / "model.gguf", folder)

    config = json.loads((folder / "config.json").read_text())
    assert config["rms_norm_eps"] == 1e-5
    assert config["tie_word_embeddings"] is True
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    layer = model.model.layers[0]
    bf16 = torch.from_numpy(tensors["blk.0.ffn_down.weight"]).bfloat16().float()
    assert torch.equal(layer.mlp.down_proj.weight, bf16)
    # Rotating neighbours of the GGUF's rows must score like rotating halves of ours.
    x = torch.randn(HIDDEN)
    stored = torch.from_numpy(tensors["blk.0.attn_q.weight"]).bfloat16().float() @ x
    ours = layer.self_attn.q_proj.weight @ x
    pairs = stored.view(HEADS, HEAD_DIM // 2, 2)
    halves = ours.view(HEADS, 2, HEAD_DIM // 2)
    torch.testing.assert_close(halves[:, 0], pairs[..., 0])
    torch.testing.assert_close(halves[:, 1], pairs[..., 1])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer("ab<|im_end|>11")["input_ids"] == [5, 2, 6, 6]
    assert tokenizer.eos_token == "<|im_end|>"


def test_foreign_architecture_is_refused(tmp_path: Path) -> None:
    make_gguf(tmp_path / "model.gguf", architecture="qwen2")
    with pytest.raises(ModelError, match="holds a qwen2, expected llama"):
        smollm2.convert(tmp_path / "model.gguf", tmp_path)


def test_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    make_gguf(tmp_path / "model.gguf", extra="blk.0.attn_sinks")
    with pytest.raises(ModelError, match=r"blk\.0\.attn_sinks\.weight has no place"):
        smollm2.convert(tmp_path / "model.gguf", tmp_path)


@pytest.mark.full
def test_the_real_model_answers(embedded: Pair) -> None:
    transformers = pytest.importorskip("transformers")
    import torch

    tokenizer = transformers.AutoTokenizer.from_pretrained(embedded.target)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 2+2? Answer briefly."}],
        add_generation_prompt=True,
        tokenize=False,
    )
    ids = tokenizer(text, return_tensors="pt").input_ids
    model = transformers.AutoModelForCausalLM.from_pretrained(embedded.target, dtype=torch.float32)
    answer = model.generate(ids, do_sample=False, max_new_tokens=16)[0, ids.shape[1] :]
    assert tokenizer.decode(answer, skip_special_tokens=True) == "The answer is 4."
