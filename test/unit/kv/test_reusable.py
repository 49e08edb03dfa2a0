"""Tokens against pairs of tokens: what the tree is given of a request, and what is looked up."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from sglang.srt import runtime_context
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.spec_hardening.kv import reusable
from sglang.srt.spec_hardening.threshold import pending
from sglang.srt.spec_hardening.threshold.pending import Pending

PROMPT = 40


class UnifiedRadixCache:
    """What is read of upstream's class of this name."""

    def __init__(self, eagle: bool = True, windows: bool = False, states: bool = False) -> None:
        self.tree_core = SimpleNamespace(is_eagle=eagle)
        self.supports_swa = lambda: windows
        self.supports_mamba = lambda: states


class Elsewhere(UnifiedRadixCache):
    """One that stores KV elsewhere too."""


tree = UnifiedRadixCache


@pytest.fixture(autouse=True)
def spec(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    said = SimpleNamespace(enable_multi_layer_eagle=False)
    monkeypatch.setattr(runtime_context, "get_spec", lambda: said)
    return said


def ended(through_stop: int, committed: int, session: object = None) -> SimpleNamespace:
    """A request with an answer of so many tokens, those after a stop left out."""
    return SimpleNamespace(
        kv=SimpleNamespace(req_pool_idx=1, kv_committed_len=committed, cache_protected_len=PROMPT),
        origin_input_ids=[7] * PROMPT,
        output_ids_through_stop=[7] * through_stop,
        session=session,
        finished_reason=None,
    )


@pytest.fixture
def behind() -> Iterator[Pending]:
    counts = Pending(4, 16)
    pending.publish(counts)
    yield counts
    pending.publish(None)


def test_the_token_without_kv_completes_the_last_pair() -> None:
    assert reusable.end(ended(10, PROMPT + 9), tree(), PROMPT + 9) == PROMPT + 10


def test_no_token_after_the_stop_is_given() -> None:
    """The stop lies within what the last verify accepted: there is KV past it."""
    assert reusable.end(ended(10, PROMPT + 12), tree(), PROMPT + 10) == PROMPT + 10
    assert reusable.end(ended(10, PROMPT + 10), tree(), PROMPT + 10) == PROMPT + 10


@pytest.mark.parametrize(
    "other",
    [tree(eagle=False), tree(windows=True), tree(states=True), Elsewhere(), SimpleNamespace()],
)
def test_other_trees_are_given_what_upstream_gives(other: object) -> None:
    assert reusable.end(ended(10, PROMPT + 9), other, PROMPT + 9) == PROMPT + 9
    assert reusable.match_limit(other, 63) == 63


def test_a_draft_of_several_layers_keeps_what_upstream_gives(spec: SimpleNamespace) -> None:
    spec.enable_multi_layer_eagle = True
    assert reusable.end(ended(10, PROMPT + 9), tree(), PROMPT + 9) == PROMPT + 9
    assert reusable.match_limit(tree(), 63) == 63


def test_a_token_that_was_replaced_completes_no_pair() -> None:
    """Upstream's own check replaces it; the draft has seen the one before."""
    request = ended(10, PROMPT + 9)
    request.output_ids, request.vocab_size = [7] * 9 + [99], 64
    request.sampling_params = SimpleNamespace(stop_token_ids=[2])
    request.eos_token_ids = None
    assert Req._check_vocab_boundary_finish(request, [99])
    assert reusable.end(request, tree(), PROMPT + 9) == PROMPT + 9


def test_a_session_keeps_its_own_count() -> None:
    assert reusable.end(ended(10, PROMPT + 9, object()), tree(), PROMPT + 9) == PROMPT + 9


def test_what_the_draft_has_not_seen_is_not_given(behind: Pending) -> None:
    """While the batch threshold keeps speculation off, the draft's KV ends earlier."""
    behind.add_one([1])
    behind.add_one([1])
    assert reusable.end(ended(10, PROMPT + 9), tree(), PROMPT + 9) == PROMPT + 7
    behind.clear([1])
    assert reusable.end(ended(10, PROMPT + 9), tree(), PROMPT + 9) == PROMPT + 10


def test_a_prompt_is_looked_up_whole_and_found_but_for_one_position() -> None:
    tokens = 64
    pairs = reusable.match_limit(tree(), tokens - 1) - 1
    assert pairs == tokens - 1
