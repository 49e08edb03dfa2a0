"""A fingerprint finds every kind of wrong capture, names slot and layers, and lets noise pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from kit.streams import LAYERS, Stream, write_dump
from sglang_spec.capture.command import capture
from sglang_spec.hardening.fingerprint import (
    NAME,
    VALUES,
    Fingerprint,
    FingerprintError,
    Trace,
    load,
)

RIGHT = [3, 15, 27]


@pytest.fixture
def marks(tmp_path: Path, streams: list[Stream]) -> Fingerprint:
    return _write(tmp_path, streams, RIGHT)


def _write(tmp_path: Path, streams: list[Stream], trained: list[int]) -> Fingerprint:
    training = write_dump(tmp_path / "training", streams, trained, noise=0.002)
    every = write_dump(tmp_path / "every", streams, list(range(LAYERS + 1)))
    draft = tmp_path / "draft"
    draft.mkdir()
    arguments = ["--dump", training, "--all-layers", every, "--draft", draft, "--tokens", 40]
    done = CliRunner().invoke(capture, ["fingerprint", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    held = load(draft)
    assert held is not None and held.path == draft / NAME and held.unproven == 3
    return held


def _captured(one: Stream, loops: list[int], tokens: int = 40, noise: float = 0.005) -> list[Trace]:
    random = np.random.default_rng(7)
    traces = []
    for loop in loops:
        states = one.states[loop, :tokens] * (1 + noise * random.normal(size=(tokens, 64)))
        norms = tuple(float(norm) for norm in np.linalg.norm(states, axis=1))
        first = tuple(tuple(float(x) for x in state[:VALUES]) for state in states)
        traces.append(Trace("captured", norms, first))
    return traces


def test_right_capture_passes(marks: Fingerprint, streams: list[Stream]) -> None:
    for number, one in enumerate(streams):
        assert marks.find(one.ids[:40].tolist()) == number
        marks.compare(number, _captured(one, RIGHT))
    assert marks.unproven == 0
    assert marks.find([1, 2, 3, 4, 5, 6]) is None


def test_prompt_whose_beginning_was_cached(marks: Fingerprint, streams: list[Stream]) -> None:
    assert marks.find(streams[1].ids[4:40].tolist()) == 1
    rest = [Trace(t.takes, t.norms[4:], t.first[4:]) for t in _captured(streams[1], RIGHT)]
    marks.compare(1, rest)


def test_states_that_are_no_numbers(marks: Fingerprint, streams: list[Stream]) -> None:
    captured = _captured(streams[0], RIGHT)
    nothing = Trace("captured", (float("nan"),) * 40, ((float("nan"),) * VALUES,) * 40)
    with pytest.raises(FingerprintError, match="slot 1 holds values that are no numbers"):
        marks.compare(0, [captured[0], nothing, captured[2]])
    assert marks.unproven == 3


# Loop indices captured, the slot that must be named, what it is and what it should be.
WRONG = {
    "one off by one": ([2, 15, 27], 0, "output of layer 1", "output of layer 2"),
    "all off by one": ([4, 16, 28], 2, "output of layer 27", "output of layer 26"),
    "embedding first": ([0, 15, 27], 0, "embedding", "output of layer 2"),
    "two swapped": ([15, 3, 27], 1, "output of layer 2", "output of layer 14"),
    "reversed": ([27, 15, 3], 0, "output of layer 26", "output of layer 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_capture_is_named(name: str, marks: Fingerprint, streams: list[Stream]) -> None:
    loops, slot, is_now, was = WRONG[name]
    with pytest.raises(FingerprintError) as refused:
        marks.compare(0, _captured(streams[0], loops))
    says = f"slot {slot} is the {is_now}, the draft was trained on the {was} there"
    assert says in str(refused.value)
    wrong = sum(a != b for a, b in zip(loops, RIGHT, strict=True))
    assert str(refused.value).count("slot ") == wrong
    assert marks.unproven == 3


def test_draft_trained_on_swapped_slots(tmp_path: Path, streams: list[Stream]) -> None:
    """The target hands over in layer order; the draft was trained on another."""
    marks = _write(tmp_path, streams, [15, 3, 27])
    with pytest.raises(FingerprintError, match="slot 0 is the output of layer 2, the draft was"):
        marks.compare(0, _captured(streams[0], RIGHT))


def test_too_few_slots(marks: Fingerprint, streams: list[Stream]) -> None:
    with pytest.raises(FingerprintError, match="trained on 3 slots, the target captures 2"):
        marks.compare(0, _captured(streams[0], RIGHT[:2]))


def test_unreadable_file(tmp_path: Path) -> None:
    assert load(tmp_path) is None
    (tmp_path / NAME).write_text("{")
    with pytest.raises(FingerprintError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / NAME).write_text('{"format": "other/1"}')
    with pytest.raises(FingerprintError, match="not eagle3-capture-fingerprint/1"):
        load(tmp_path)


def test_training_data_of_another_target(tmp_path: Path, streams: list[Stream]) -> None:
    training = write_dump(tmp_path / "training", streams, RIGHT, noise=0.5)
    every = write_dump(tmp_path / "every", streams, list(range(LAYERS + 1)))
    arguments = ["--dump", training, "--all-layers", every, "--draft", tmp_path]
    done = CliRunner().invoke(capture, ["fingerprint", *map(str, arguments)])
    assert done.exit_code == 1 and "is no layer of" in done.output
