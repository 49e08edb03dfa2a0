"""A fingerprint of what a draft was trained on, checked against what the target captures.

The capture tool writes `capture_fingerprint.json` beside a draft: for a few
prompts, the norm and the first five values of every slot of the training data, and the same of
every layer of the target. A server that finds the file prefills these prompts in its self-test, and
what the target hands over is compared on the way. No floor on the accept length can do this: a
capture that is off by one layer costs a few percent of it.

Called by: `aux_capture.plan_capture` (loads it), `capture_plan.CapturePlan.compare`, the self-test
(sends the prompts). Imports without torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

NAME = "capture_fingerprint.json"
FORMAT = "eagle3-capture-fingerprint/1"
VALUES = 5
# A captured slot this near to the training data is right, whatever the layers beside it look like.
SAME = 0.05


class FingerprintError(ValueError):
    """The file cannot be read, or the target captures what the draft was not trained on."""


@dataclass(frozen=True)
class Trace:
    """One slot or layer over the tokens of a prompt. `first[t]` are the first values of token t."""

    takes: str
    norms: tuple[float, ...]
    first: tuple[tuple[float, ...], ...]

    def distance(self, other: Trace) -> float:
        """Median over tokens of the relative difference of first values and norm; from the end, so
        that a prompt whose beginning was found in the cache is compared where it was computed."""
        count = min(len(self.norms), len(other.norms))
        steps = []
        for place in range(1, count + 1):
            norm, wanted = self.norms[-place], other.norms[-place]
            ours, theirs = self.first[-place], other.first[-place]
            length = math.hypot(*theirs) or 1e-30
            apart = math.hypot(*(a - b for a, b in zip(ours, theirs, strict=True))) / length
            steps.append(max(apart, abs(norm - wanted) / (wanted or 1e-30)))
        return median(steps)


@dataclass(frozen=True)
class Prompt:
    """`slots`: as the draft was trained; `layers`: every layer of the target, to name by."""

    input_ids: tuple[int, ...]
    slots: tuple[Trace, ...]
    layers: tuple[Trace, ...]


@dataclass
class Fingerprint:
    """The prompts, and which of them have been compared."""

    path: Path
    prompts: tuple[Prompt, ...]
    proven: set[int] = field(default_factory=set)

    @property
    def unproven(self) -> int:
        return len(self.prompts) - len(self.proven)

    def find(self, input_ids: Sequence[int]) -> int | None:
        """The prompt that these tokens are, or are the rest of."""
        given = tuple(input_ids)
        for number, prompt in enumerate(self.prompts):
            if len(given) >= VALUES and prompt.input_ids[-len(given) :] == given:
                return number
        return None

    def compare(self, number: int, captured: Sequence[Trace]) -> None:
        """Hold the captured slots of prompt `number` against the training data.

        Raises:
            FingerprintError: a slot is another layer; the text names slot and layers.
        """
        prompt = self.prompts[number]
        if len(captured) != len(prompt.slots):
            raise FingerprintError(
                f"{self.path}: the draft was trained on {len(prompt.slots)} slots, the target "
                f"captures {len(captured)}"
            )
        wrong = []
        for slot, (got, trained) in enumerate(zip(captured, prompt.slots, strict=True)):
            error = got.distance(trained)
            if not math.isfinite(error):
                wrong.append(f"slot {slot} holds values that are no numbers")
                continue
            is_now = nearest(got, prompt.layers)
            was = nearest(trained, prompt.layers)
            if error > SAME and is_now.takes != was.takes:
                wrong.append(
                    f"slot {slot} is the {_bare(is_now)}, the draft was trained on the "
                    f"{_bare(was)} there (relative error {error:.2f})"
                )
        if wrong:
            raise FingerprintError(
                f"{self.path}: {'; '.join(wrong)}; correct eagle_aux_hidden_state_layer_ids "
                "(the log says what an id means in this family)"
            )
        self.proven.add(number)


def nearest(trace: Trace, layers: Sequence[Trace]) -> Trace:
    """The layer that a trace is most like."""
    return min(layers, key=trace.distance)


def _bare(trace: Trace) -> str:
    return trace.takes.removeprefix("the ")


def load(folder: Path) -> Fingerprint | None:
    """The fingerprint beside a draft, None if there is none.

    Raises:
        FingerprintError: there is one that cannot be read.
    """
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        held = json.loads(path.read_text())
        if held["format"] != FORMAT:
            raise FingerprintError(f"{path}: format is {held['format']!r}, not {FORMAT}")
        prompts = tuple(
            Prompt(
                tuple(int(token) for token in one["input_ids"]),
                tuple(_trace(slot) for slot in one["slots"]),
                tuple(_trace(layer) for layer in one["layers"]),
            )
            for one in held["prompts"]
        )
        _refuse_useless(prompts)
    except FingerprintError:
        raise
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise FingerprintError(f"{path} cannot be read: {error!r}") from error
    return Fingerprint(path, prompts)


def _refuse_useless(prompts: Sequence[Prompt]) -> None:
    """A file that would compare nothing, or whose rows are not those of its tokens."""
    if not prompts:
        raise ValueError("it holds no prompts")
    for number, prompt in enumerate(prompts):
        if not prompt.slots or not prompt.layers:
            raise ValueError(f"prompt {number} has no slots or no layers to name them by")
        for trace in (*prompt.slots, *prompt.layers):
            if not len(trace.norms) == len(trace.first) == len(prompt.input_ids):
                raise ValueError(
                    f"prompt {number} has {len(prompt.input_ids)} tokens, its {trace.takes} "
                    f"{len(trace.norms)} norms and the first values of {len(trace.first)}"
                )


def _trace(held: dict[str, Any]) -> Trace:
    return Trace(
        str(held["takes"]),
        tuple(_finite(norm) for norm in held["norms"]),
        tuple(_values(token) for token in held["first"]),
    )


def _values(token: Sequence[Any]) -> tuple[float, ...]:
    if len(token) != VALUES:
        raise ValueError(f"{len(token)} first values of a token, not {VALUES}")
    return tuple(map(_finite, token))


def _finite(value: Any) -> float:
    """Nothing would ever differ from NaN by more than a bound."""
    if not math.isfinite(number := float(value)):
        raise ValueError(f"{value} is no number")
    return number


def traces_of(captured: Any, slots: int, tokens: int) -> list[Trace]:
    """The slots of a forward's first `tokens` rows.

    Args:
        captured: one packed tensor [rows, slots * hidden], or a list of [rows, hidden] tensors.
    """
    states = captured if isinstance(captured, (list, tuple)) else captured.chunk(slots, dim=-1)
    return [
        Trace(
            f"slot {slot}",
            tuple(state[:tokens].float().norm(dim=-1).tolist()),
            tuple(tuple(values) for values in state[:tokens, :VALUES].float().tolist()),
        )
        for slot, state in enumerate(states)
    ]
