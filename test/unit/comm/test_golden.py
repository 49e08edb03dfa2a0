"""The plan for each recorded machine and the first user's launch, as reviewed text.

`GOLDEN=write pytest test/unit/comm/test_golden.py` writes the files anew; read the difference.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from .conftest import MACHINES

GOLDEN = Path(__file__).parent / "golden"
# Kimi-K2.5 with EAGLE3, 3 steps, captured up to 128 requests.
LAUNCH = {
    "architecture": "KimiK25ForConditionalGeneration",
    "hidden_size": 7168,
    "num_draft_tokens": 4,
    "max_bs": 128,
}


def rendered(comm: Any, facts: Any) -> str:
    """The first user's launch with its fusion flag, without it, and with nothing applied."""
    lines = import_module("sglang_spec.hardening.comm.table").lines
    ranks = max(len(facts.gpus), 1)
    text = []
    for title, fusion, apply in (
        ("with --enable-flashinfer-allreduce-fusion, --speculative-comm-plan auto", "auto", True),
        ("without the fusion flag, --speculative-comm-plan auto", None, True),
        ("without the fusion flag and without a plan", None, False),
    ):
        settings = comm.Settings(tp_size=ranks, fusion_backend=fusion, **LAUNCH)
        plan = comm.decide(facts, settings, {}, apply=apply)
        text += [f"## --tp-size {ranks} {title}", "", *lines(plan), ""]
    return "\n".join(line.rstrip() for line in text)


@pytest.mark.parametrize("name", MACHINES)
def test_the_plan_is_the_reviewed_one(comm: Any, machine: Any, name: str) -> None:
    found = rendered(comm, machine(name))
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")
