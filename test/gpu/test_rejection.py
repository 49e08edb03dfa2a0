"""Rejection sampling where a step drafts nothing: adaptive at 0 steps, and the batch threshold.

Upstream's rejection sampling asks a step without drafts for their distribution and ends the server.
Two servers, about two minutes on an H200.
"""

from __future__ import annotations

import json
from pathlib import Path

from kit.crossing import FLAGS, crossing, prompt
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation

COMMON = (
    *("--mem-fraction-static", "0.8", "--max-total-tokens", "65536"),
    *("--max-running-requests", "16", "--cuda-graph-max-bs-decode", "16"),
    *("--context-length", "2048", "--attention-backend", "triton"),
    "--speculative-use-rejection-sampling",
)
LENGTHS = [12, 30, 50, 70, 90]


def sample(client: Client) -> list[int]:
    """Lengths of sampled answers of many lengths, sent together."""
    sampling = [
        {"temperature": 4.0, "ignore_eos": True, "max_new_tokens": length} for length in LENGTHS
    ]
    reply = client.post(
        "/generate",
        input_ids=[prompt(n, 20) for n in range(len(LENGTHS))],
        sampling_params=sampling,
    )
    reply.raise_for_status()
    return [len(answer["output_ids"]) for answer in reply.json()]


def test_adaptive_at_zero_steps(servers: ServerPool, tiny: Pair, tmp_path: Path) -> None:
    config = tmp_path / "adaptive.json"
    config.write_text(json.dumps({"1": {"candidate_steps": [3]}, "3": {"candidate_steps": [0]}}))
    flags = ("--speculative-adaptive", "--speculative-adaptive-config", str(config))
    launch = Launch(tiny.target, Speculation(tiny.draft), arguments=(*COMMON, *flags))
    assert sample(servers.client(launch)) == LENGTHS


def test_the_batch_threshold(servers: ServerPool, tiny: Pair, tmp_path: Path) -> None:
    launch = Launch(tiny.target, Speculation(tiny.draft), arguments=(*COMMON, *FLAGS))
    with crossing(servers, launch, tmp_path) as server:
        for plan in ("", "coin 1", "coin 2"):
            server.plan(plan)
            assert sample(server.client) == LENGTHS
        assert server.info()["switches"] > 4
