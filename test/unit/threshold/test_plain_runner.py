"""Upstream's graph runner, asked for the plain decode of a target that has a draft."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardMode
from sglang.srt.model_executor.runner import decode_cuda_graph_runner as upstream
from sglang.srt.model_executor.runner.base_cuda_graph_runner import BaseCudaGraphRunner

WIDTH = 4  # tokens of a request in a verify
VERIFY = (ForwardMode.TARGET_VERIFY, WIDTH)
PLAIN = (ForwardMode.DECODE, 1)


class WidthIsKnownError(Exception):
    """The constructor has come to the batch sizes; capturing them would need a GPU."""


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A `ModelRunner` of a target that verifies `WIDTH` tokens; what is left of it is nothing."""
    runner = MagicMock(dtype=torch.bfloat16, device="cpu", is_draft_worker=False)
    runner.model_config.hidden_size = 8
    runner.spec_algorithm.is_speculative.return_value = True
    runner.spec_algorithm.is_eagle.return_value = True
    runner.decode_num_tokens_per_req.return_value = WIDTH

    def begin(self: Any, model_runner: Any) -> None:
        self.model_runner = model_runner

    def stop(*_: object, **__: object) -> None:
        raise WidthIsKnownError

    monkeypatch.setattr(BaseCudaGraphRunner, "__init__", begin)
    monkeypatch.setattr(
        BaseCudaGraphRunner, "return_hidden_states_mode", CaptureHiddenMode.NULL, raising=False
    )
    nothing = dict.fromkeys(
        ("_lora_backend_skips_inactive", "is_dsa_enable_prefill_cp", "is_mla_cp_enabled"), False
    )
    nothing |= dict.fromkeys(
        ("create_attention_graph_variants", "create_dsv41_candidate_graph_variants"), None
    )
    for name, answer in nothing.items():
        monkeypatch.setattr(upstream, name, MagicMock(return_value=answer))
    for name in ("get_flags", "get_exec", "get_parallel", "get_spec"):
        monkeypatch.setattr(upstream, name, MagicMock())
    monkeypatch.setattr(upstream.DllmConfig, "from_server_args", lambda _: None)
    monkeypatch.setattr(
        upstream.DecodeCudaGraphRunner,
        "decode_graph_gather_requirements",
        lambda *_: (False, False),
    )
    monkeypatch.setattr(upstream, "get_batch_sizes_to_capture", stop)
    return runner


def begun(target: Any, **asked: bool) -> Any:
    """A runner of which all is known but the graphs."""
    runner = object.__new__(upstream.DecodeCudaGraphRunner)
    with pytest.raises(WidthIsKnownError):
        upstream.DecodeCudaGraphRunner.__init__(runner, target, **asked)
    runner.buffers = MagicMock()
    return runner


def test_a_plain_decode_is_one_token_a_request_without_a_verify(target: Any) -> None:
    runner = begun(target, plain_decode=True)
    assert (runner.capture_forward_mode, runner.captured_req_width) == PLAIN
    assert runner.capture_hidden_mode is CaptureHiddenMode.FULL, "the draft needs the states later"
    assert runner.get_spec_info(1) is None


def test_without_being_asked_it_captures_the_verify(target: Any) -> None:
    runner = begun(target)
    assert (runner.capture_forward_mode, runner.captured_req_width) == VERIFY
    assert runner.get_spec_info(WIDTH).draft_token_num is runner.speculative_num_draft_tokens
