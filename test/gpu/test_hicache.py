"""What `test/cpu/test_hicache.py` asks, with the copies and events of the GPU: page size and layout
vary. Graphs and overlap are on, so a load that is not waited for shows as a wrong token."""

from __future__ import annotations

import pytest
from kit import hicache
from kit.servers import ServerPool, spawner
from sglang_spec.models import Pair

COPIES = {
    "kernel": (),
    "kernel-page-64": ("--page-size", "64"),
    "direct-page-first": (
        *("--hicache-io-backend", "direct", "--hicache-mem-layout", "page_first_direct"),
        *("--page-size", "64"),
    ),
}


@pytest.mark.parametrize("copies", COPIES)
def test_what_is_loaded_back_drafts_as_before(servers: ServerPool, tiny: Pair, copies: str) -> None:
    more = (
        *("--mem-fraction-static", "0.3", "--attention-backend", "triton"),
        *("--cuda-graph-max-bs-decode", "8", *COPIES[copies]),
    )
    log = servers.log(f"hicache-{copies}")
    with hicache.serving(tiny, log, spawner(servers.zygote), more) as client:
        before, after = hicache.evicted_and_loaded_back(client)
    assert [one.tokens for one in after] == [one.tokens for one in before]
    assert hicache.accept_length(after) >= 0.98 * hicache.accept_length(before)
