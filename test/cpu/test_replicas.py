"""Servers behind the real router: one is killed, stands still, drafts badly, is restarted.

All of it with an API key, under requests. Slow: seven starts of servers and about a minute of load.
Needs sglang-router.
"""

from __future__ import annotations

from typing import Any

import pytest
from kit import replicas, routed_asks

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(why := replicas.why_none()), reason=why),
]


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return replicas.run(tmp_path_factory.mktemp("replicas"))


def check_nothing_lost(found: dict[str, Any]) -> None:
    assert found["requests"] > 0
    assert found["retryable_lost"] == found["begun_and_cut"] == 0, found


def test_a_killed_server_loses_no_request_that_can_be_sent_again(figures: dict[str, Any]) -> None:
    found = figures["killed"]
    assert found["requests"] == routed_asks.CONCURRENT
    assert found["retryable_lost"] == found["wrong_or_silently_short"] == 0, found
    assert found["under_way_at_the_killed_one"] > 0
    check_nothing_lost(found["while_it_starts_again"])
    assert found["while_it_starts_again"]["sent_to_it"] == 0


def test_nothing_is_sent_to_a_server_that_is_not_ready(figures: dict[str, Any]) -> None:
    check_nothing_lost(figures["hanging"])
    assert figures["hanging"]["sent_to_it_while_out"] == 0
    assert figures["hanging"]["sent_to_the_other_meanwhile"] > 0


def test_a_rolling_restart_loses_nothing(figures: dict[str, Any]) -> None:
    check_nothing_lost(figures["rolled"])
    assert figures["rolled"]["restarted"] == 2


def test_nothing_is_sent_to_a_server_that_drafts_badly(figures: dict[str, Any]) -> None:
    """It is alive, decodes and answers rightly; only its speculation is degraded."""
    found = figures["degraded"]
    assert found["ready_speculation_healthy"] == 503 and found["says"].startswith("degraded: ")
    assert found["ready"] == found["ready_at_the_end"] == 200
    assert found["sent_to_it_while_out"] == 0 and found["sent_to_the_others_meanwhile"] > 0
    check_nothing_lost(found)
    check_nothing_lost(found["asked_directly_it_answers"])
    check_nothing_lost(found["while_it_is_restarted"])
    assert found["healthy_again"] == 3


def test_the_router_of_the_guide_lets_nobody_in_without_the_key(figures: dict[str, Any]) -> None:
    found = figures["keys"]
    by_whom = found["router_with_the_key"]
    for status in by_whom["the key"].values():
        assert status == [200]
    for who in ("no key", "another key"):
        asked = dict(by_whom[who])
        assert asked.pop("GET /readiness") == [200]  # a balancer before it has no key
        assert list(asked.values()) == [[401]] * len(asked)
    assert found["sent_on_for_those"] == 0 and found["add_without_the_key"] == 401


def test_a_router_without_a_key_is_given_none(figures: dict[str, Any]) -> None:
    """It sends on what clients give, so the servers refuse; its own routes are open to all.

    Its circuit breaker takes refusals for failures, so a 503 may come in place of any answer.
    """
    by_whom = figures["keys"]["router_without_a_key"]
    for who in ("no key", "another key"):
        for route in ("POST /generate", "POST /v1/completions"):
            assert set(by_whom[who][route]) <= {401, 503}, by_whom
        assert by_whom[who]["GET /workers"] == [200]
