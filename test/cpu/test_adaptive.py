"""Adaptive step counts on the CPU: the states are built, they switch, the output stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.server import Launch, Speculation

ORACLE = Oracle(TINY)
PROMPTS = [[0, *range(70, 110)], [0, *range(300, 200, -3)], [0, 77, 78]]
STEPS = 3
# One or two requests draft, three or more do not.
CONFIG = {"1": {"candidate_steps": [STEPS]}, "3": {"candidate_steps": [0]}}


def batch(client: Client, lengths: list[int]) -> list[dict[str, Any]]:
    """One request for each prompt, of these many new tokens."""
    reply = client.post(
        "/generate",
        input_ids=PROMPTS,
        sampling_params=[
            {"temperature": 0, "ignore_eos": True, "max_new_tokens": length} for length in lengths
        ],
    )
    reply.raise_for_status()
    body: list[dict[str, Any]] = reply.json()
    return body


@pytest.mark.parametrize("graphs", ["graphs enabled", "graphs disabled"])
def test_states_switch_and_the_output_stays(
    servers: ServerPool, tiny: Pair, tmp_path: Path, graphs: str
) -> None:
    config = tmp_path / "adaptive.json"
    config.write_text(json.dumps(CONFIG))
    flags = ["--speculative-adaptive", "--speculative-adaptive-config", str(config)]
    flags.append("--skip-speculative-self-test")  # its batches would switch states too
    if graphs == "graphs disabled":
        flags.append("--disable-cuda-graph")
    launch = Launch(tiny.target, Speculation(tiny.draft, STEPS, 1, STEPS + 1), arguments=flags)
    with servers.start(launch, "adaptive") as server:
        server.wait_ready()
        client = Client(server.url)
        alone = client.generate(PROMPTS[0], 17, ignore_eos=True)
        assert list(alone.tokens) == ORACLE.greedy(PROMPTS[0], 17)
        assert alone.correct_drafts == (0, 0, 0, 4)
        lengths = [9, 12, 41]  # three requests, then two, then one
        for prompt, length, answer in zip(PROMPTS, lengths, batch(client, lengths), strict=True):
            assert answer["output_ids"] == ORACLE.greedy(prompt, length)
        client.close()
        info = httpx.get(f"{server.url}/server_info", timeout=30).json()
        # The state of the start is in `states_gb`; the one without drafts was built after it.
        taken = info["internal_states"][0]["kv_cost"]["adaptive_states_gb"]
        assert list(taken) == ["0"] and 0 <= taken["0"] < 1
        log = server.log.read_text(errors="replace")
    switches = [
        line.split("runtime state: ")[1] for line in log.splitlines() if "Switch ad" in line
    ]
    assert [switch.split(",")[0] for switch in switches] == ["steps 3 -> 0", "steps 0 -> 3"]
