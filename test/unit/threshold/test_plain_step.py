"""A step without speculation on a server with overlap: what it launches besides the target."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.spec_hardening.fidelity import window
from sglang.srt.spec_hardening.threshold import plain_step
from sglang.srt.spec_hardening.threshold.plain_graphs import PlainGraphs
from sglang.srt.spec_hardening.threshold.ring import Ring
from torch.utils._python_dispatch import TorchDispatchMode

ROWS, WIDTH = 3, 6


class Launches(TorchDispatchMode):
    """Names of the operators that would be kernels or copies on a GPU; views cost nothing."""

    VIEWS = ("view", "alias", "detach", "lift_fresh", "_to_copy", "slice", "unsqueeze", "select")

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        copies = name == "_to_copy" and (kwargs or {}).get("dtype") != args[0].dtype
        if name not in self.VIEWS or copies:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def batch() -> Any:
    table = torch.arange(40, dtype=torch.int32).view(4, 10)
    return SimpleNamespace(
        req_to_token_pool=SimpleNamespace(req_to_token=table),
        req_pool_indices=torch.tensor([1, 2, 3]),
        seq_lens=torch.tensor([4, 5, 6]),
        seq_lens_cpu=None,
        has_grammar=False,
        return_logprob=False,
        enable_overlap=True,
        spec_info=SimpleNamespace(bonus_tokens=torch.tensor([7, 8, 9]), cuda_graph_compatible=True),
    )


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Notes what it was given; its tokens and states are its own."""
    seen: list[tuple[str, Any]] = []
    output = SimpleNamespace(next_token_logits=None, hidden_states=torch.ones(ROWS, WIDTH))
    done = SimpleNamespace(
        logits_output=output,
        can_run_cuda_graph=True,
        routed_experts_output=None,
        indexer_topk_output=None,
    )
    tokens = torch.tensor([11, 12, 13])

    def forward(batch: Any, forward_batch: Any, is_verify: bool) -> Any:
        seen.append(("forward", forward_batch))
        return done

    monkeypatch.setattr(plain_step.ForwardBatch, "init_new", lambda step, *_, **__: step)
    monkeypatch.setattr(window, "plain_step", lambda *_: None)
    runner = SimpleNamespace(sample=lambda *_: tokens)
    return SimpleNamespace(model_runner=runner, forward_batch_generation=forward, seen=seen)


def test_the_lengths_are_published_before_the_step_runs(batch: Any, target: Any) -> None:
    """On some backends the host waits for them before it prepares the next batch."""

    def publish(lengths: torch.Tensor) -> None:
        target.seen.append(("published", lengths.tolist()))

    result = plain_step.decode(target, PlainGraphs(), batch, publish, None)
    assert [what for what, _ in target.seen] == ["published", "forward"]
    assert target.seen[0][1] == result.new_seq_lens.tolist() == [5, 6, 7]
    step = target.seen[1][1]
    assert step.input_ids.tolist() == [7, 8, 9]
    assert step.out_cache_loc.tolist() == [14, 25, 36]
    assert result.accept_lens.tolist() == [1, 1, 1] and result.accept_lens.dtype is torch.int32
    assert batch.seq_lens.tolist() == [4, 5, 6]


def test_the_batch_is_prepared_for_the_graphs_that_run_it(
    batch: Any, target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Preparing writes which adapter a row wants to where the graphs read it."""
    runner = target.model_runner
    runner.attn_backend, runner.decode_cuda_graph_runner = "verify", "verify"

    def init_new(step: Any, runner: Any, **_: Any) -> Any:
        target.seen.append(("prepared", runner.decode_cuda_graph_runner))
        return step

    monkeypatch.setattr(plain_step.ForwardBatch, "init_new", init_new)
    plain_step.decode(target, PlainGraphs("plain", "plain"), batch, None, None)
    assert target.seen[0] == ("prepared", "plain")
    assert runner.decode_cuda_graph_runner == "verify"


def test_a_step_launches_little_besides_the_target(batch: Any, target: Any) -> None:
    ring = Ring(4, 16, WIDTH, torch.float32, "cpu")
    plain_step.decode(target, PlainGraphs(), batch, None, None)
    with Launches() as launches:
        result = plain_step.decode(target, PlainGraphs(), batch, None, None)
        ring.store([1, 2, 3], [0, 0, 0], result.logits_output.hidden_states, result.next_token_ids)
    # Slots of the new tokens, lengths, and the ring's entry; the ring's place is copied up.
    assert launches.names == ["index", "_to_copy", "add", "index_copy_", "index_copy_"]
