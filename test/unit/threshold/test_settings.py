"""The flags of the batch threshold: what they mean, and errors that name flag, value, remedy."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sglang.srt.spec_hardening.threshold import (
    AUTO,
    Settings,
    Threshold,
    ThresholdError,
    make_decider,
    settings_of,
)
from sglang.srt.spec_hardening.threshold.policy import Bounds


def arguments(
    disable: object = None, enable: int | None = None, dwell: int | None = None
) -> SimpleNamespace:
    return SimpleNamespace(
        speculative_disable_batch_threshold=disable,
        speculative_enable_batch_threshold=enable,
        speculative_threshold_dwell=dwell,
    )


def test_no_flag_is_no_threshold() -> None:
    assert settings_of(arguments()) is None
    assert make_decider(arguments()) is None


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        (("64",), Bounds(64, 48, 32)),
        ((64,), Bounds(64, 48, 32)),
        (("1",), Bounds(1, 0, 32)),
        (("3",), Bounds(3, 2, 32)),
        (("10", 2, 5), Bounds(10, 2, 5)),
        (("10", 0), Bounds(10, 0, 32)),
    ],
)
def test_numbers_and_their_defaults(given: tuple[object, ...], bounds: Bounds) -> None:
    decider = make_decider(arguments(*given))  # type: ignore[arg-type]
    assert isinstance(decider, Threshold)
    assert decider.bounds == bounds


def test_auto_is_read() -> None:
    assert settings_of(arguments(" AUTO ")) == Settings(AUTO)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("0",), "--speculative-disable-batch-threshold 0: write the number"),
        (("-4",), "--speculative-disable-batch-threshold -4: write the number"),
        (("many",), "1 or more, or auto"),
        (("8", 8), "--speculative-enable-batch-threshold 8: .* write 0 to 7"),
        (("8", -1), "--speculative-enable-batch-threshold -1"),
        (("auto", 4), "auto finds its own; leave it out"),
        (("8", 4, 0), "--speculative-threshold-dwell 0: write 1 batch or more"),
        ((None, 4), "--speculative-enable-batch-threshold 4 needs --speculative-disable"),
        ((None, None, 4), "--speculative-threshold-dwell 4 needs --speculative-disable"),
    ],
)
def test_what_is_wrong_is_named(given: tuple[object, ...], says: str) -> None:
    with pytest.raises(ThresholdError, match=says):
        settings_of(arguments(*given))  # type: ignore[arg-type]
