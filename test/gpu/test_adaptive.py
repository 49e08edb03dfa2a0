"""Adaptive step counts: each state has the graphs of the batch sizes that lead to it, no others.

One server, half a minute on an H200.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from kit import decode_checks
from kit.decode_setups import Setup
from kit.servers import ServerPool
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.server import Launch

STEPS = {"1": {"candidate_steps": [3]}, "3": {"candidate_steps": [2]}}
LEAST = 3  # the smallest batch with two steps
# Two lines a state: of the draft's steps and of its catching up.
CAPTURE = re.compile(r"Capture draft \w+ CUDA graph begin\..*\bbs=\[([\d, ]+)\]")


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    config = tmp_path_factory.mktemp("adaptive") / "steps.json"
    config.write_text(json.dumps(STEPS))
    flags = ("--speculative-adaptive", "--speculative-adaptive-config", str(config))
    return Setup("adaptive", flags=flags, largest_graph=16).launch()


def captured(log: Path) -> set[tuple[int, ...]]:
    """The lists of sizes that a server's log says it captured graphs of its draft for."""
    said = CAPTURE.findall(log.read_text(errors="replace"))
    return {tuple(int(size) for size in sizes.split(",")) for sizes in said}


@pytest.mark.parametrize("batch", [1, 2, 3, 16, 24])
def test_tokens_are_the_oracles(servers: ServerPool, launch: Launch, batch: int) -> None:
    decode_checks.batch(servers.client(launch), Oracle(TINY), batch)


def test_a_state_captures_no_size_that_it_is_not_used_at(
    servers: ServerPool, launch: Launch
) -> None:
    found = captured(servers.server(launch).log)
    whole = max(found, key=len, default=())
    assert 1 in whole and 16 in whole
    assert found == {whole, tuple(size for size in whole if size >= LEAST)}
