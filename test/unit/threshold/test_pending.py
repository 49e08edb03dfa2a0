"""How far the draft is behind, and what the radix cache may keep of a request that ends."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from sglang.srt.spec_hardening.threshold import pending
from sglang.srt.spec_hardening.threshold.pending import Pending, checkpoint_end


@pytest.fixture
def counts() -> Iterator[Pending]:
    counts = Pending(8, 4)
    pending.publish(counts)
    yield counts
    pending.publish(None)


def ended(row: int, committed: int, protected: int = 0) -> SimpleNamespace:
    kv = SimpleNamespace(
        req_pool_idx=row, kv_committed_len=committed, cache_protected_len=protected
    )
    return SimpleNamespace(kv=kv)


def test_rows_count_for_themselves(counts: Pending) -> None:
    counts.add_one([1, 2])
    counts.add_one([2, 3])
    assert counts.of([1, 2, 3, 4]) == [1, 2, 1, 0]
    counts.clear([2])
    assert counts.of([1, 2, 3]) == [1, 0, 1]


def test_more_than_the_ring_holds_is_an_error(counts: Pending) -> None:
    for _ in range(4):
        counts.add_one([5])
    with pytest.raises(RuntimeError, match="row 5 is 4 tokens behind already"):
        counts.add_one([5])


def test_without_a_threshold_everything_is_kept() -> None:
    assert checkpoint_end(ended(1, 100), 90) == 90


def test_a_request_that_is_not_behind_is_kept_whole(counts: Pending) -> None:
    assert checkpoint_end(ended(1, 100), 100) == 100


@pytest.mark.parametrize(
    ("committed", "owned", "protected", "kept"),
    [
        (100, 100, 0, 97),
        (100, 98, 0, 97),  # a stop before the end
        (100, 95, 0, 95),
        (40, 40, 38, 39),  # prefilled with 39 tokens: 38 bigrams are in the tree for good
    ],
)
def test_what_the_draft_has_not_seen_is_not_kept(
    counts: Pending, committed: int, owned: int, protected: int, kept: int
) -> None:
    for _ in range(3):
        counts.add_one([1])
    assert checkpoint_end(ended(1, committed, protected), owned) == kept
