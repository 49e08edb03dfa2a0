"""Sampling fields of requests: penalties that change what the tiny pair says, each in its way."""

from __future__ import annotations

from typing import Any

# Tokens close enough for a penalty to decide between them.
LIFTED = {"logit_bias": {"70": 30, "71": 30.5, "72": 31, "80": 30.25, "90": 28.125}}
PENALTIES: tuple[dict[str, Any], ...] = (
    {"repetition_penalty": 1.5},
    {"repetition_penalty": 0.6},
    {"repetition_penalty": 0.6, "frequency_penalty": 2.0},
    {"frequency_penalty": 1.5, **LIFTED},
    {"presence_penalty": 1.5, **LIFTED},
    {"frequency_penalty": -0.5, "presence_penalty": 0.25, **LIFTED},
    {},
)
