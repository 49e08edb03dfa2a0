"""A fault anywhere ends the whole tree by name, or turns health red; no silent half-life."""

from __future__ import annotations

import pytest
from kit.fault_run import Outcome, Plan, run_engine
from kit.servers import ServerPool
from sglang_spec import host
from sglang_spec.models import Pair

pytestmark = pytest.mark.skipif(host.device() != "cpu", reason="forks from a preloaded process")


def _raised(outcome: Outcome) -> str:
    kinds = [event["kind"] for event in outcome.events if event["event"] == "raised"]
    assert kinds == ["EngineDeadError"], (outcome.events, outcome.log)
    return outcome.line


@pytest.mark.parametrize("thread", [False, True], ids=["main-thread", "other-thread"])
def test_engine_caller_gets_an_exception(servers: ServerPool, tiny: Pair, thread: bool) -> None:
    """The rank leaves with SystemExit(0) while it serves, which upstream takes for health."""
    plan = Plan("serving_verify:exit")
    outcome = run_engine(servers.zygote, tiny, plan, thread=thread)
    assert outcome.code == 0 and outcome.events[-1]["event"] == "alive", outcome
    assert [event["event"] for event in outcome.events] == ["ready", "raised", "alive"]
    assert "rank TP0" in _raised(outcome) and "stage verify: SystemExit: 0" in outcome.line
    assert not outcome.left
