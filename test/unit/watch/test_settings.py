"""The levels of `--speculative-watch`."""

from __future__ import annotations

import pytest
from sglang_spec.hardening.watch.settings import Level, level_of


@pytest.mark.parametrize(
    ("given", "device", "level"),
    [
        (None, "cpu", Level.PHASES),
        (None, "cuda", Level.COUNTS),
        ("off", "cpu", Level.OFF),
        ("counts", "cpu", Level.COUNTS),
        ("phases", "cuda", Level.PHASES),
    ],
)
def test_levels(given: str | None, device: str, level: Level) -> None:
    assert level_of(given, device) is level


def test_another_value_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="--speculative-watch all: write one of off, counts"):
        level_of("all", "cpu")
