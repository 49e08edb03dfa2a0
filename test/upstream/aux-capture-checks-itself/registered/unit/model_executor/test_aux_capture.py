"""Unit tests for the layers that an EAGLE3 target captures: no server, no model loading."""

import unittest
from types import SimpleNamespace
from unittest.mock import patch

from transformers import LlamaConfig

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.model_executor.model_runner_components import spec_aux_hidden_state
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

register_cpu_ci(est_time=14, suite="base-a-test-cpu")

_IDS = "eagle_aux_hidden_state_layer_ids"


def _draft(**places) -> LlamaConfig:
    """The config of a draft that names its layers in these places."""
    return LlamaConfig(
        architectures=["LlamaForCausalLMEagle3"],
        num_hidden_layers=1,
        draft_vocab_size=128,
        **places,
    )


def _resolve(hf_config: LlamaConfig):
    """Which layers the target is told to capture for this draft."""
    draft = SimpleNamespace(
        hf_config=hf_config,
        num_nextn_predict_layers=None,
        num_hidden_layers=1,
        num_attention_layers=1,
        is_hybrid_swa=False,
    )
    spec = SimpleNamespace(
        speculative_draft_model_path="draft",
        speculative_draft_model_revision=None,
        speculative_contract="enforce",
    )
    config = SimpleNamespace(
        eagle_use_aux_hidden_state=False,
        eagle_aux_hidden_state_layer_ids=None,
        eagle_draft_num_layers=None,
        draft_kv_num_layers=None,
    )
    with (
        patch.object(ModelConfig, "from_server_args", return_value=draft),
        patch.object(spec_aux_hidden_state, "get_spec", return_value=spec),
    ):
        spec_aux_hidden_state._resolve_eagle_aux_hidden_state(
            config=config,
            server_args=SimpleNamespace(),
            model_config=SimpleNamespace(),
            spec_algorithm=SpeculativeAlgorithm.EAGLE3,
            is_draft_worker=False,
        )
    return config


class TestAuxCapture(CustomTestCase):
    def test_nested_ids(self):
        found = _resolve(_draft(eagle_config={_IDS: [1, 3, 5]}))
        self.assertEqual(found.eagle_aux_hidden_state_layer_ids, [1, 3, 5])
        self.assertTrue(found.eagle_use_aux_hidden_state)

    def test_ids_at_the_top_level(self):
        found = _resolve(_draft(**{_IDS: [1, 3, 5]}))
        self.assertEqual(found.eagle_aux_hidden_state_layer_ids, [1, 3, 5])

    def test_no_ids_are_the_default_layers(self):
        found = _resolve(_draft())
        self.assertIsNone(found.eagle_aux_hidden_state_layer_ids)
        self.assertTrue(found.eagle_use_aux_hidden_state)

    def test_places_that_disagree_are_an_error(self):
        places = {"eagle_config": {_IDS: [1, 3, 5]}, _IDS: [0, 2, 4]}
        with self.assertRaisesRegex(ValueError, _IDS):
            _resolve(_draft(**places))

    def test_ids_that_cannot_be_read_are_an_error(self):
        with self.assertRaisesRegex(ValueError, _IDS):
            _resolve(_draft(eagle_config={_IDS: "1, 3, 5"}))


if __name__ == "__main__":
    unittest.main()
