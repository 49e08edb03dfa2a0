"""Unit tests for the check of an EAGLE3 draft against its target: no server, no model loading.

The models are folders with a config and the headers of a weight file.
"""

import json
import math
import struct
import tempfile
import unittest
from pathlib import Path

from sglang.srt.server_args import ServerArgs
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=15, suite="base-a-test-cpu")

_HIDDEN, _HEADS, _INNER, _VOCABULARY, _DRAFT_VOCABULARY = 64, 4, 96, 256, 128
_TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": _HIDDEN,
    "intermediate_size": _INNER,
    "num_hidden_layers": 8,
    "num_attention_heads": _HEADS,
    "num_key_value_heads": _HEADS,
    "vocab_size": _VOCABULARY,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
_DRAFT = _TARGET | {
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": _DRAFT_VOCABULARY,
    "target_hidden_size": _HIDDEN,
    "eagle_config": {
        "eagle_aux_hidden_state_layer_ids": [1, 3, 5],
        "use_aux_hidden_state": True,
    },
}
_TENSORS = {
    "d2t": ("I64", [_DRAFT_VOCABULARY]),
    "t2d": ("BOOL", [_VOCABULARY]),
    "fc.weight": ("BF16", [_HIDDEN, 3 * _HIDDEN]),
    "lm_head.weight": ("BF16", [_DRAFT_VOCABULARY, _HIDDEN]),
    "norm.weight": ("BF16", [_HIDDEN]),
    "midlayer.hidden_norm.weight": ("BF16", [_HIDDEN]),
    "midlayer.input_layernorm.weight": ("BF16", [_HIDDEN]),
    "midlayer.post_attention_layernorm.weight": ("BF16", [_HIDDEN]),
    "midlayer.self_attn.q_proj.weight": ("BF16", [_HIDDEN, 2 * _HIDDEN]),
    "midlayer.self_attn.k_proj.weight": ("BF16", [_HIDDEN, 2 * _HIDDEN]),
    "midlayer.self_attn.v_proj.weight": ("BF16", [_HIDDEN, 2 * _HIDDEN]),
    "midlayer.self_attn.o_proj.weight": ("BF16", [_HIDDEN, _HIDDEN]),
    "midlayer.mlp.gate_proj.weight": ("BF16", [_INNER, _HIDDEN]),
    "midlayer.mlp.up_proj.weight": ("BF16", [_INNER, _HIDDEN]),
    "midlayer.mlp.down_proj.weight": ("BF16", [_HIDDEN, _INNER]),
}
_BYTES = {"I64": 8, "BOOL": 1, "BF16": 2}


def _write_weights(path: Path, tensors: dict) -> None:
    """A safetensors file; the vocabulary maps take the first tokens, all else is zero."""
    header, data = {}, b""
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * _BYTES[dtype]
        values = bytes(size)
        if name == "t2d":
            values = bytes([1] * _DRAFT_VOCABULARY).ljust(size, b"\0")
        header[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [len(data), len(data) + size],
        }
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class TestDraftContract(CustomTestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.target = Path(folder.name, "target")
        self.draft = Path(folder.name, "draft")

    def _resolve(
        self, draft: dict, tensors: dict = _TENSORS, **arguments
    ) -> ServerArgs:
        """What the parent does with a launch before it spawns a scheduler."""
        for path, config in ((self.target, _TARGET), (self.draft, draft)):
            path.mkdir(exist_ok=True)
            (path / "config.json").write_text(json.dumps(config))
        _write_weights(self.draft / "model.safetensors", tensors)
        given = {
            "speculative_algorithm": "EAGLE3",
            "speculative_num_steps": 3,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": 4,
        }
        args = ServerArgs(
            model_path=str(self.target),
            speculative_draft_model_path=str(self.draft),
            device="cpu",
            **given | arguments,
        )
        args.resolve_once()
        return args

    def _refuse(self, words: str, draft: dict, tensors: dict = _TENSORS, **arguments):
        with self.assertRaisesRegex(ValueError, words):
            self._resolve(draft, tensors, **arguments)

    def _with_ids(self, ids: list) -> dict:
        return _DRAFT | {
            "eagle_config": _DRAFT["eagle_config"]
            | {"eagle_aux_hidden_state_layer_ids": ids}
        }

    def test_right_pair_is_accepted(self):
        self._resolve(_DRAFT)

    def test_layer_that_does_not_exist(self):
        self._refuse("eagle_aux_hidden_state_layer_ids.*99", self._with_ids([1, 3, 99]))

    def test_order_in_which_nothing_is_captured(self):
        self._refuse("eagle_aux_hidden_state_layer_ids", self._with_ids([5, 3, 1]))

    def test_number_of_layers_that_fc_was_not_trained_for(self):
        self._refuse("fc", self._with_ids([1, 3]))

    def test_missing_vocabulary_map(self):
        tensors = {name: entry for name, entry in _TENSORS.items() if name != "d2t"}
        self._refuse("d2t", _DRAFT, tensors)

    def test_eagle3_draft_under_the_older_algorithm(self):
        self._refuse("EAGLE3", _DRAFT, speculative_algorithm="EAGLE")

    def test_report_mode_refuses_nothing(self):
        args = self._resolve(self._with_ids([5, 3, 1]), speculative_contract="report")
        self.assertEqual(args.speculative_algorithm, "EAGLE3")


if __name__ == "__main__":
    unittest.main()
