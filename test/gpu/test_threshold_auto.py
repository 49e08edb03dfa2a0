"""`auto` on one GPU: the table is measured with graphs and overlap on, the output is right."""

from __future__ import annotations

import pytest
from kit.servers import ServerPool
from sglang_spec.models import tiny_pair
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.server import Launch, Speculation

COMMON = (
    *("--mem-fraction-static", "0.8", "--max-total-tokens", "65536"),
    *("--max-running-requests", "64", "--cuda-graph-max-bs-decode", "64"),
    *("--context-length", "4096", "--speculative-disable-batch-threshold", "auto"),
)
PROMPTS = [[0, *range(70 + row, 90 + row)] for row in range(64)]


@pytest.mark.parametrize("backend", ["triton", "flashinfer"])
def test_it_measures_itself_and_decides(servers: ServerPool, backend: str) -> None:
    pair = tiny_pair(TINY)
    flags = (*COMMON, "--attention-backend", backend)
    client = servers.client(Launch(pair.target, Speculation(pair.draft), "bfloat16", flags))
    oracle = Oracle(TINY)
    for count in (1, 64, 8, 64, 1):
        asked = PROMPTS[:count]
        answers = client.generate_batch(asked, 65, ignore_eos=True)
        assert [list(answer.tokens) for answer in answers] == [oracle.greedy(p, 65) for p in asked]
    found = client.get("/server_info").json()["internal_states"][0]["batch_threshold"]
    short, long = found["milliseconds"]
    assert short["requests"] == [1, 2, 4, 8, 16, 32, 64]
    assert long["context"] > 2 * short["context"]
    for phase in ("decode", "draft", "verify", "draft_extend"):
        # Far above what a step of so small a model takes on any GPU: a compilation was timed.
        assert min(short[phase]) > 0 and max(short[phase]) < 50
    # Five calls of 65 tokens, of which a batch makes at most four a request.
    assert found["batches_on"] + found["batches_off"] >= 5 * 16
    assert "tokens decode in" in found["reason"]
    # What live batches take is near what was measured at start. Four times: beside six other lanes
    # of tests one H200 took 2.25 times as long.
    for ratios in (
        line[f"{kind}_to_start"] for line in (short, long) for kind in ("step", "cycle")
    ):
        assert min(ratios) > 0.25 and max(ratios) < 4.0
