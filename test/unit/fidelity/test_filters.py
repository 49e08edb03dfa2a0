"""Verify samples from what the plain sampler's filters leave."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.verify_steps import VOCABULARY, Batch, Request, chains
from sglang.kernels.ops.sampling import renorm
from sglang.srt import runtime_context
from sglang.srt.layers.sampler import top_k_top_p_min_p_sampling_from_probs_torch
from sglang.srt.sampling.sampling_params import TOP_K_ALL
from sglang.srt.spec_hardening.fidelity import filters
from sglang.srt.speculative import eagle_utils

NODES = 3


def renormalized(probs: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    left = probs * kept
    return left / left.sum(dim=-1, keepdim=True)


def top_k(probs: torch.Tensor, ks: torch.Tensor) -> torch.Tensor:
    """What flashinfer's kernel does; there is none for the CPU."""
    order = probs.argsort(dim=-1, descending=True).argsort(dim=-1)
    return renormalized(probs, order < ks[:, None])


def top_p(probs: torch.Tensor, ps: torch.Tensor) -> torch.Tensor:
    ordered, index = probs.sort(dim=-1, descending=True)
    kept = torch.zeros_like(probs, dtype=torch.bool)
    kept.scatter_(1, index, ordered.cumsum(dim=-1) - ordered <= ps[:, None])
    return renormalized(probs, kept)


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    # Plain upstream's verify calls them by names of its own.
    for module in (renorm, eagle_utils):
        monkeypatch.setattr(module, "top_k_renorm_prob", top_k, raising=False)
        monkeypatch.setattr(module, "top_p_renorm_prob", top_p, raising=False)
    use_backend(monkeypatch, "pytorch")


def use_backend(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    said = SimpleNamespace(kernel=SimpleNamespace(sampling_backend=name))
    monkeypatch.setattr(runtime_context, "get_exec", lambda: said)


def info_of(rows: list[tuple[int, float, float]]) -> Any:
    """Parameters of requests with (top_k, top_p, min_p)."""
    ks, ps, ms = (list(column) for column in zip(*rows, strict=True))
    return SimpleNamespace(
        temperatures=torch.ones(len(rows), 1),
        top_ks=torch.tensor(ks, dtype=torch.int32),
        top_ps=torch.tensor(ps),
        min_ps=torch.tensor(ms),
        need_top_k_sampling=any(k != TOP_K_ALL for k in ks),
        need_top_p_sampling=any(p != 1.0 for p in ps),
        need_min_p_sampling=any(m > 0 for m in ms),
    )


def plain(probs: torch.Tensor, info: Any) -> torch.Tensor:
    """The distribution of the plain sampler's torch backend, for one token of each request."""
    _, weights, tokens, _ = top_k_top_p_min_p_sampling_from_probs_torch(
        probs.clone(),
        info.top_ks,
        info.top_ps,
        info.min_ps,
        info.need_min_p_sampling,
        None,
        None,  # type: ignore[arg-type]
        return_filtered_probs=True,
    )
    found = torch.zeros_like(probs).scatter_(1, tokens.long(), weights)
    return found / found.sum(dim=-1, keepdim=True)


ROWS = st.tuples(
    st.sampled_from([TOP_K_ALL, 1, 2, 5, 40]),
    st.sampled_from([1.0, 0.9, 0.5, 0.1]),
    st.sampled_from([0.0, 0.01, 0.3, 0.9, 1.0]),
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(ROWS, min_size=1, max_size=5))
def test_the_distribution_is_the_plain_samplers(
    seed: int, rows: list[tuple[int, float, float]]
) -> None:
    torch.manual_seed(seed)
    info = info_of(rows)
    probs = torch.softmax(2 * torch.randn(len(rows) * NODES, VOCABULARY), dim=-1)
    found = filters.keep(probs.clone(), info, NODES)
    for node in range(NODES):
        expected = plain(probs[node::NODES], info)
        torch.testing.assert_close(found[node::NODES], expected, rtol=1e-5, atol=1e-6)


def test_top_k_does_not_change_what_top_p_sees() -> None:
    """Upstream's verify scales in between: 0.4 and 0.3 become 0.57 and 0.43, and 0.3 is lost."""
    probs = torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    found = filters.keep(probs, info_of([(2, 0.5, 0.0)]), 1)
    torch.testing.assert_close(found, torch.tensor([[0.4, 0.3, 0.0, 0.0]]) / 0.7)


def test_flashinfers_sampler_scales_in_between_with_min_p(monkeypatch: pytest.MonkeyPatch) -> None:
    use_backend(monkeypatch, "flashinfer")
    probs = torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    found = filters.keep(probs, info_of([(2, 0.5, 0.01)]), 1)
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.0, 0.0, 0.0]]))


def test_verify_calls_the_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The distributions that the sampling kernel gets, from upstream's own verify."""
    got: list[torch.Tensor] = []

    def kernel(**arguments: Any) -> None:
        got.append(arguments["target_probs"])
        arguments["accept_token_num"].zero_()

    spec = SimpleNamespace(
        speculative_use_rejection_sampling=False,
        speculative_accept_threshold_single=1.0,
        speculative_accept_threshold_acc=1.0,
    )
    monkeypatch.setattr(eagle_utils, "get_spec", lambda: spec)
    monkeypatch.setattr(eagle_utils, "_verify_uses_greedy", lambda **_: False)
    monkeypatch.setattr(
        eagle_utils,
        "sampling_softmax",
        lambda logits, temperatures: torch.softmax(logits / temperatures, dim=-1),
    )
    monkeypatch.setattr(eagle_utils, "tree_speculative_sampling_target_only", kernel)
    monkeypatch.setattr(
        "sglang.srt.runtime_context.get_parallel",
        lambda: SimpleNamespace(tp_group=SimpleNamespace(world_size=1)),
    )
    monkeypatch.setattr("sglang.srt.layers.dp_attention.is_dp_attention_enabled", lambda: False)
    info = info_of([(TOP_K_ALL, 1.0, 0.5), (2, 0.5, 0.0)])
    vars(info).update(
        is_all_greedy=False,
        logit_bias=None,
        sampling_seed=None,
        has_custom_logit_processor=False,
        has_watermark_candidates=False,
        acc_additive_penalties=None,
        acc_scaling_penalties=None,
    )
    batch: Any = Batch([Request([5]), Request([6])], **vars(info))
    batch.seq_lens = torch.tensor([4, 4])
    batch.forward_mode = SimpleNamespace(is_idle=lambda: False)
    verify = chains([[5, 6, 7], [6, 7, 8]])
    verify.retrieve_index = torch.arange(6).view(2, 3)  # type: ignore[attr-defined]
    logits = torch.randn(6, VOCABULARY)
    probs = torch.softmax(logits, dim=-1)
    eagle_utils.eagle_sample(verify, batch, SimpleNamespace(next_token_logits=logits))
    (found,) = got
    for row in range(2):
        one = info_of([[(TOP_K_ALL, 1.0, 0.5), (2, 0.5, 0.0)][row]] * 3)
        expected = plain(probs.view(2, 3, -1)[row], one)
        torch.testing.assert_close(found[row], expected, rtol=1e-5, atol=1e-6)
