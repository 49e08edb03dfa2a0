"""Where upstream asks the batch threshold, without a server: what each patch of it is for."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from sglang.srt.arg_groups import lora_hook, validation_hook
from sglang.srt.managers.scheduler_components.batch_result_processor import (
    SchedulerBatchResultProcessor,
)
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.server_args import ServerArgs
from sglang.srt.spec_hardening import cycle, proposed
from sglang.srt.speculative import eagle_worker_v2


def test_the_flags_are_known() -> None:
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    flags = ("disable-batch-threshold", "8", "enable-batch-threshold", "4", "threshold-dwell", "2")
    given = [f"--speculative-{word}" if not word.isdigit() else word for word in flags]
    found, unknown = parser.parse_known_args(["--model-path", "x", *given])
    assert unknown == []
    assert found.speculative_disable_batch_threshold == "8"
    assert (found.speculative_enable_batch_threshold, found.speculative_threshold_dwell) == (4, 2)


def test_a_launch_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """By upstream's own check of arguments."""
    monkeypatch.setattr(validation_hook, "check_memory_per_rank", lambda cfg: None)
    monkeypatch.setattr(lora_hook, "check_lora_server_args", lambda args: None)
    args = ServerArgs(
        model_path="dummy",
        served_model_name="dummy",
        device="cpu",
        speculative_disable_batch_threshold="0",
    )
    with pytest.raises(ValueError, match="--speculative-disable-batch-threshold 0"):
        validation_hook.check_server_args(args)


@pytest.mark.parametrize("plain", [True, False])
def test_a_decode_batch_is_decided_first(monkeypatch: pytest.MonkeyPatch, plain: bool) -> None:
    """A plain step is the batch's result; otherwise it goes on to draft as it always did."""

    class Drafts(Exception):
        pass

    monkeypatch.setattr(cycle, "launched", lambda batch: None)
    worker = MagicMock()
    worker.activate_step_by_batch.side_effect = Drafts
    worker.threshold.step.return_value = "a plain step's result" if plain else None
    batch = MagicMock(is_extend_in_batch=False)
    batch.forward_mode.is_extend.return_value = batch.forward_mode.is_idle.return_value = False
    try:
        found = eagle_worker_v2.EAGLEWorkerV2.forward_batch_generation(worker, batch)
    except Drafts:
        found = "drafts"
    assert found == ("a plain step's result" if plain else "drafts")
    assert worker.threshold.step.call_count == 1


@pytest.mark.parametrize("plain", [True, False])
def test_only_a_verify_is_counted(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    said = SimpleNamespace(speculative_adaptive=False, speculative_num_draft_tokens=4)
    monkeypatch.setattr(proposed, "get_spec", lambda: said)
    counts = ("spec_verify_ct", "spec_num_correct_drafts", "spec_num_proposed_drafts")
    req = MagicMock(is_retracted=False, grammar=None, **dict.fromkeys(counts, 0))
    req.kv.kv_committed_len = 10
    req.finished.return_value = False
    processor: Any = MagicMock()
    width = 1 if plain else 4
    result = GenerationBatchResult(
        next_token_ids=torch.arange(width),
        accept_lens=torch.tensor([1 if plain else 3]),
        speculative_num_draft_tokens=width,
    )
    result.is_plain_step = plain
    batch: Any = SimpleNamespace(reqs=[req])
    SchedulerBatchResultProcessor._resolve_spec_v2_tokens(processor, result, batch)
    assert req.kv.kv_committed_len == (11 if plain else 13)
    assert tuple(getattr(req, count) for count in counts) == ((0, 0, 0) if plain else (1, 2, 3))
    assert req.update_spec_correct_drafts_histogram.call_count == (not plain)
