"""Two servers behind the real router: one is killed, stands still, is restarted, under requests.

Slow: four starts of servers and about half a minute of load. Needs sglang-router.
"""

from __future__ import annotations

from typing import Any

import pytest
from kit import replicas

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
    assert found["requests"] == replicas.CONCURRENT
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
