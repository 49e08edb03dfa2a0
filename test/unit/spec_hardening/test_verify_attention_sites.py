"""Where upstream asks whether a verify is a decode, and that it is one only then."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from sglang.srt.arg_groups import lora_hook, validation_hook
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.server_args import ServerArgs
from sglang.srt.spec_hardening.verify_attention import rows
from sglang.srt.spec_hardening.verify_attention.choice import VerifyAttentionError

FLAG = "--speculative-verify-attention"


def backend(**fields: Any) -> Any:
    """A triton backend that was not set up, with the fields that a call site reads."""
    made: Any = TritonAttnBackend.__new__(TritonAttnBackend)
    made.dllm_attention = made.sliding_window_size = made.window_kv_indptr = None
    made.dcp_size = 1
    made.verify_rows = MagicMock()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def batch(mode: ForwardMode) -> Any:
    return SimpleNamespace(forward_mode=mode, batch_size=2, spec_info="a verify's input")


def test_a_verify_is_a_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """All four places: eager metadata, a graph's buffers, its metadata, and a layer's attention."""
    made, verify = backend(), batch(ForwardMode.TARGET_VERIFY)
    made.init_forward_metadata(verify)
    assert made.forward_metadata is made.verify_rows.eager.return_value
    made.verify_rows.eager.assert_called_once_with(made, verify)

    lens, pool = torch.tensor([5, 6]), torch.tensor([1, 2])
    made._apply_cuda_graph_metadata(
        "plan", 2, pool, lens, ForwardMode.TARGET_VERIFY, verify.spec_info
    )
    made.verify_rows.fill.assert_called_once_with(made, "plan", lens, pool, verify.spec_info)
    found = made._build_cuda_graph_forward_metadata(2, ForwardMode.TARGET_VERIFY, verify.spec_info)
    assert found is made.verify_rows.captured.return_value

    made.use_dense_fp8_chunked_prefill = False
    monkeypatch.setattr(made, "_can_run_dense_fp8_chunked_mha", lambda *_: False)
    monkeypatch.setattr(made, "_set_kv_buffer", MagicMock())
    layer = MagicMock(k_scale=None, qk_head_dim=8, v_head_dim=8, logit_cap=0.0)
    layer.logit_capping_method = "tanh"
    verify.mha_one_shot, verify.out_cache_loc, verify.out_cache_loc_is_physical = False, pool, True
    q, k, v = (torch.zeros(2, 8) for _ in range(3))
    found = made.forward_extend(q, k, v, layer, verify, sinks="sinks")
    assert found is made.verify_rows.attend.return_value
    assert made._set_kv_buffer.call_count == 1, "keys and values are written before"
    made.verify_rows.attend.assert_called_once_with(made, q, layer, verify, "sinks", None)


def test_another_mode_is_left_alone() -> None:
    class Elsewhere(Exception):
        pass

    made = backend(_update_decode_kv_buffers=MagicMock(side_effect=Elsewhere))
    with pytest.raises(Elsewhere):
        made._apply_cuda_graph_metadata("plan", 2, None, None, ForwardMode.DECODE, None)
    made._update_draft_extend_buffers = MagicMock(side_effect=Elsewhere)
    with pytest.raises(Elsewhere):
        made._apply_cuda_graph_metadata("plan", 2, None, None, ForwardMode.DRAFT_EXTEND_V2, None)
    assert made.verify_rows.mock_calls == []


def test_without_the_flag_a_verify_extends() -> None:
    class Extends(Exception):
        pass

    made = backend(verify_rows=None, _update_target_verify_buffers=MagicMock(side_effect=Extends))
    with pytest.raises(Extends):
        made._apply_cuda_graph_metadata("plan", 2, [1, 2], None, ForwardMode.TARGET_VERIFY, None)


@pytest.mark.parametrize(("mode", "drafts"), [("extend", False), ("decode", True), ("auto", True)])
def test_no_rows_for_a_draft_or_without_the_flag(
    monkeypatch: pytest.MonkeyPatch, mode: str, drafts: bool
) -> None:
    said = SimpleNamespace(speculative_verify_attention=mode)
    monkeypatch.setattr(rows, "get_spec", lambda: said)
    assert rows.for_backend(backend(is_draft_runner=drafts), MagicMock()) is None


def test_what_the_loaded_model_does_not_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent saw no window in the config; the model has one."""
    said = SimpleNamespace(speculative_verify_attention="decode")
    monkeypatch.setattr(rows, "get_spec", lambda: said)
    made = backend(
        is_draft_runner=False, topk=1, enable_deterministic=False, use_mla=False,
        dllm_block_size=None, kv_index_translator=SimpleNamespace(reads_are_translated=False),
        sliding_window_size=4096,
    )  # fmt: skip
    monkeypatch.setattr("sglang.srt.configs.hybrid_arch.mambaish_config", lambda _: None)
    runner = SimpleNamespace(model_config=SimpleNamespace(is_encoder_decoder=False))
    with pytest.raises(VerifyAttentionError, match="sliding-window"):
        rows.for_backend(made, runner)
    said.speculative_verify_attention = "auto"
    assert rows.for_backend(made, runner) is None


ODD_LAYERS = {
    "attends across": {"is_cross_attention": True},
    "is AttentionType.ENCODER_ONLY": {"attn_type": AttentionType.ENCODER_ONLY},
    "has a sliding window": {"sliding_window_size": 128},
}


@pytest.mark.parametrize("said", [*ODD_LAYERS, "changes its scores"])
def test_a_layer_that_attends_otherwise(said: str) -> None:
    plain = {
        "layer_id": 3, "is_cross_attention": False, "attn_type": AttentionType.DECODER,
        "sliding_window_size": -1,
    }  # fmt: skip
    layer = SimpleNamespace(**{**plain, **ODD_LAYERS.get(said, {})})
    made = MagicMock()
    given = rows.VerifyRows.__new__(rows.VerifyRows)
    with pytest.raises(VerifyAttentionError, match=f"layer 3 of the target {said}"):
        given.attend(made, torch.zeros(1, 8), layer, MagicMock(), None,
                     "a score_mod" if said not in ODD_LAYERS else None)  # fmt: skip
    assert made.forward_decode.call_count == 0


def test_an_output_that_was_given_is_filled() -> None:
    layer = SimpleNamespace(
        layer_id=3, is_cross_attention=False, attn_type=AttentionType.DECODER,
        sliding_window_size=None,
    )  # fmt: skip
    made = MagicMock()
    made.forward_decode.return_value = torch.arange(16.0).view(2, 8)
    out = torch.zeros(2, 2, 4)
    given = rows.VerifyRows.__new__(rows.VerifyRows)
    asked = SimpleNamespace(_attn_output=out)
    assert given.attend(made, torch.zeros(2, 8), layer, asked, None, None) is out
    assert out.flatten().tolist() == list(range(16))


@pytest.mark.parametrize("longest", [5, 6, 100])
def test_lengths_of_rows(longest: int) -> None:
    found = rows.lengths(torch.tensor([1, 4], dtype=torch.int32), 3, longest)
    assert found.dtype == torch.int32
    assert found.tolist() == [min(one, longest) for one in (2, 3, 4, 5, 6, 7)]


def test_more_rows_than_there_is_room_for() -> None:
    given = rows.VerifyRows.__new__(rows.VerifyRows)
    given.indptr = torch.zeros(9, dtype=torch.int32)
    made = MagicMock(cuda_graph_num_kv_splits=torch.zeros(64), max_context_len=96)
    made._target_verify_num_tokens_per_req.return_value = 4
    lens = torch.tensor([5, 5, 5])
    given.fill(made, None, lens[:2], lens[:2], None)
    assert made._fill_kv_indptr_and_indices.call_count == 1
    with pytest.raises(VerifyAttentionError, match="3 requests and 4 tokens each"):
        given.fill(made, None, lens, lens, None)


def test_the_flag_is_known() -> None:
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    found, unknown = parser.parse_known_args(["--model-path", "x", FLAG, "decode"])
    assert unknown == [] and found.speculative_verify_attention == "decode"
    assert (
        parser.parse_known_args(["--model-path", "x"])[0].speculative_verify_attention == "extend"
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "needs --speculative-algorithm"),
        ({"speculative_algorithm": "EAGLE3", "attention_backend": "flashinfer"}, "flashinfer"),
        ({"speculative_algorithm": "EAGLE3", "attention_backend": "triton",
          "speculative_eagle_topk": 4}, "topk 4"),
        ({"speculative_algorithm": "EAGLE3", "attention_backend": "triton",
          "speculative_eagle_topk": 1, "decode_attention_backend": "fa3",
          "speculative_attention_mode": "decode"}, "backend fa3"),
        ({"speculative_algorithm": "EAGLE3", "attention_backend": "triton",
          "speculative_eagle_topk": 1, "enable_unified_memory": True}, "--enable-unified-memory"),
    ],
)  # fmt: skip
def test_a_launch_is_refused_before_loading(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], said: str
) -> None:
    """By upstream's own check of arguments."""
    monkeypatch.setattr(validation_hook, "check_memory_per_rank", lambda cfg: None)
    monkeypatch.setattr(lora_hook, "check_lora_server_args", lambda args: None)
    args = ServerArgs(
        model_path="dummy", served_model_name="dummy", device="cpu", chunked_prefill_size=-1,
        speculative_verify_attention="decode", **fields,
    )  # fmt: skip
    with pytest.raises(VerifyAttentionError, match=said):
        validation_hook.check_server_args(args)


MODELS = {
    "sliding-window": {"is_hybrid_swa": True},
    "MLA": {"attention_arch": "mla"},
    "recurrent": {"mamba": True},
    "encoder": {"is_encoder_decoder": True},
    "": {},
}


@pytest.mark.parametrize("said", MODELS)
@pytest.mark.parametrize("mode", ["decode", "auto"])
def test_a_target_is_refused_before_loading(
    monkeypatch: pytest.MonkeyPatch, said: str, mode: str
) -> None:
    from sglang.srt.arg_groups import model_override_base
    from sglang.srt.configs.model_config import AttentionArch
    from sglang.srt.spec_hardening.verify_attention.choice import check_launch

    has = MODELS[said]
    model = SimpleNamespace(
        is_hybrid_swa=has.get("is_hybrid_swa", False),
        is_encoder_decoder=has.get("is_encoder_decoder", False),
        attention_arch=AttentionArch.MLA if "attention_arch" in has else AttentionArch.MHA,
    )
    monkeypatch.setattr(model_override_base, "model_config_of", lambda _: model)
    monkeypatch.setattr(
        "sglang.srt.configs.hybrid_arch.mambaish_config", lambda _: has.get("mamba")
    )
    args = ServerArgs(
        model_path="dummy", served_model_name="dummy", device="cpu", attention_backend="triton",
        speculative_algorithm="EAGLE3", speculative_eagle_topk=1,
        speculative_verify_attention=mode,
    )  # fmt: skip
    if said and mode == "decode":
        with pytest.raises(VerifyAttentionError, match=said):
            check_launch(args)
    else:
        assert check_launch(args) is (not said)
