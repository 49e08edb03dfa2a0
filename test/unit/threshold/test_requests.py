"""What a server with a batch threshold refuses at the request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sglang_spec.hardening.threshold import requests


def _ask(threshold: int | str | None, **sampling: Any) -> None:
    requests.check(SimpleNamespace(sampling_params=sampling), threshold)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("frequency_penalty", 0.5),
        ("presence_penalty", -1.0),
        ("repetition_penalty", 1.1),
        ("min_new_tokens", 3),
    ],
)
@pytest.mark.parametrize("threshold", [8, "auto"])
def test_a_count_of_its_own_tokens_is_refused_by_name(
    field: str, value: float, threshold: int | str
) -> None:
    with pytest.raises(ValueError, match=f"{field}: {value}.*--speculative-disable.*{threshold}"):
        _ask(threshold, **{field: value})
    _ask(None, **{field: value})


def test_values_that_ask_for_nothing_pass() -> None:
    _ask(8, frequency_penalty=0, repetition_penalty=1.0, min_new_tokens=None, temperature=0.5)
    requests.check(SimpleNamespace(sampling_params=None), 8)
