"""EAGLE3 on a hierarchical KV cache: what comes back from the host, drafts as well as before.

The draft's KV has a host pool beside the target's. If it were not loaded back, answers would stay
right and the drafts would miss, which the control below shows. On the CPU the copies are torch's
(`kit.hicache_on_cpu`); `test/gpu/test_hicache.py` does the same with the real ones.

Slow: two servers of their own, which share no flags with others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import hicache, tampered
from kit.servers import ServerPool
from sglang_spec import host
from sglang_spec.client import Client
from sglang_spec.models import Pair

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(host.device() != "cpu", reason="a GPU runs test/gpu/test_hicache.py"),
]

ON_CPU = "import kit.hicache_on_cpu"
# The draft's pool stays where it is: nothing of it goes to the host, nothing comes back.
WITHOUT_THE_DRAFT = f"""{ON_CPU}
from sglang.srt.speculative import base_spec_worker
base_spec_worker.BaseSpecWorker._build_hicache_draft_plan = (
    lambda self: base_spec_worker.HiCacheDraftPlan()
)
"""


@pytest.fixture(params=[ON_CPU, WITHOUT_THE_DRAFT], ids=["whole", "control"])
def served(
    request: pytest.FixtureRequest, servers: ServerPool, tiny: Pair, tmp_path: Path
) -> Iterator[tuple[Client, bool]]:
    """A client, and whether the draft's KV goes to the host too."""
    if servers.zygote is None:
        pytest.skip("needs forks of a preloaded process")
    spawn = tampered.spawner(servers.zygote, tmp_path / "program.py", request.param)
    with hicache.serving(tiny, servers.log("hicache"), spawn) as client:
        yield client, request.param == ON_CPU


def test_what_is_loaded_back_drafts_as_before(served: tuple[Client, bool]) -> None:
    client, whole = served
    before, after = hicache.evicted_and_loaded_back(client)
    assert [one.tokens for one in after] == [one.tokens for one in before]
    share = hicache.accept_length(after) / hicache.accept_length(before)
    if whole:
        assert share >= 0.98, (before, after)
    else:
        assert share < 0.9, "lost draft KV does not show, so this test proves nothing"
