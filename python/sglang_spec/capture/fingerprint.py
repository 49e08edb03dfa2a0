"""Writes the fingerprint of a draft: a few prompts' slots at training time, and every layer."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .compare import compare
from .dump import Dump, DumpError, Sample


def write(training: Dump, every: Dump, draft: Path, prompts: int = 3, tokens: int = 48) -> Path:
    """Write `capture_fingerprint.json` into the folder `draft`.

    Args:
        training: what the draft was trained on, slots in the order of `fc`.
        every: the same samples with every layer captured, to name layers by.
        prompts, tokens: how many samples to take, and how much of each.

    Raises:
        DumpError: the dumps share no samples, or the training data is none of the layers.
    """
    core: Any = import_module("sglang_spec.hardening.fingerprint")
    found = compare(training, training, every)
    for slot, match in enumerate(found.matches_a):
        if not match.certain:
            raise DumpError(
                f"{training.folder}: slot {slot} is no layer of {every.folder} (the nearest is the "
                f"{match.label}, relative error {match.error:.2f})"
            )
    marks: list[dict[str, Any]] = []
    for sample in training.samples():
        layers = _same_sample(sample, every)
        if layers is None or sample.input_ids is None or len(marks) == prompts:
            continue
        count = min(tokens, len(sample.states))
        labels = tuple(match.label for match in found.matches_a)
        marks.append(
            {
                "input_ids": sample.input_ids[:count].tolist(),
                "slots": _traces(sample, labels, count, core.VALUES),
                "layers": _traces(layers, every.labels, count, core.VALUES),
            }
        )
    path = draft / str(core.NAME)
    path.write_text(json.dumps({"format": core.FORMAT, "prompts": marks}) + "\n")
    return path


def _same_sample(sample: Sample, every: Dump) -> Sample | None:
    wanted = sample.input_ids
    for other in every.samples():
        held = other.input_ids
        if held is not None and wanted is not None and np.array_equal(held, wanted):
            return other
    return None


def _traces(
    sample: Sample, labels: tuple[str, ...], count: int, values: int
) -> list[dict[str, Any]]:
    return [
        {
            "takes": label,
            "norms": [_short(norm) for norm in np.linalg.norm(sample.states[:count, slot], axis=1)],
            "first": [[_short(x) for x in token] for token in sample.states[:count, slot, :values]],
        }
        for slot, label in enumerate(labels)
    ]


def _short(value: float) -> float:
    """Five digits: more than bfloat16 has."""
    return float(f"{float(value):.5g}")
