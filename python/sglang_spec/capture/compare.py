"""Compares two dumps slot by slot, and says in a sentence which layer each slot really is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .distance import Distance, Distances
from .dump import Dump, DumpError, Sample
from .tensorfile import Array

# Two captures of one layer differ by the rounding of another batch shape or kernel; two
# neighbouring layers of a trained model differ by ten times this and more.
SAME = 0.05
EMBEDDING = "the embedding"


@dataclass(frozen=True)
class Match:
    """What a slot is, by its states: the nearest of the layers it was held against."""

    label: str
    loop: int | None
    error: float
    runner_up: float
    cosine: float

    @property
    def certain(self) -> bool:
        return self.error <= SAME and self.error < 0.5 * self.runner_up


@dataclass(frozen=True)
class TokenRow:
    """One token's norm and first five values of every slot of A and B."""

    token: int
    norms_a: tuple[float, ...]
    norms_b: tuple[float, ...]
    first_a: tuple[tuple[float, ...], ...]
    first_b: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Comparison:
    """Everything found. `matrix[i][j]`: slot i of A against column j.

    Attributes:
        columns: labels of the columns: B's slots, or the layers of the reference dump.
        matches_a, matches_b: what each slot is; for B, by the reference or by its own labels.
    """

    labels_a: tuple[str, ...]
    labels_b: tuple[str, ...]
    columns: tuple[str, ...]
    matrix: list[list[Distance]]
    direct: list[Distance]
    matches_a: list[Match]
    matches_b: list[Match]
    tokens: int
    samples: int
    rows: list[TokenRow]

    @property
    def same(self) -> bool:
        """Whether every slot of A is the slot of B in the same place."""
        return len(self.labels_a) == len(self.labels_b) and all(
            distance.error <= SAME for distance in self.direct
        )

    def sentences(self) -> list[str]:
        return [self._sentence(slot) for slot in range(len(self.labels_a))]

    def _sentence(self, slot: int) -> str:
        match, label = self.matches_a[slot], self.labels_a[slot]
        named = f"slot {slot} of A" + (f", labelled {label}," if label != f"slot {slot}" else "")
        is_what = f"{named} is {_article(match.label)}"
        if not match.certain:
            is_what = (
                f"{named} is none of the layers it was held against (nearest: {match.label}, "
                f"relative error {match.error:.3f})"
            )
        if slot >= len(self.labels_b):
            return f"{is_what}; B has no slot {slot}"
        error = self.direct[slot].error
        if error <= SAME:
            return f"{is_what}, and so is slot {slot} of B (relative error {error:.4f})"
        return f"{is_what}; B captures {_article(self.matches_b[slot].label)} there"

    def to_json(self) -> dict[str, Any]:
        return {
            "same": self.same,
            "samples": self.samples,
            "tokens": self.tokens,
            "sentences": self.sentences(),
            "labels_a": list(self.labels_a),
            "labels_b": list(self.labels_b),
            "columns": list(self.columns),
            "matrix": [[vars(cell) for cell in row] for row in self.matrix],
            "direct": [vars(distance) for distance in self.direct],
            "matches_a": [vars(match) | {"certain": match.certain} for match in self.matches_a],
            "matches_b": [vars(match) | {"certain": match.certain} for match in self.matches_b],
            "tokens_shown": [vars(row) for row in self.rows],
        }


def _article(label: str) -> str:
    return f"the {label}" if label.startswith("output") else label


def compare(
    a: Dump, b: Dump, reference: Dump | None = None, show: int = 0, limit: int | None = None
) -> Comparison:
    """Compare the samples that both dumps (and the reference) hold.

    Args:
        reference: a dump of every layer; without it A's slots are held against B's only.
        show: tokens of the first sample to list one by one.
        limit: stop after this many tokens.

    Raises:
        DumpError: nothing in common, other token ids, or other widths.
    """
    columns = reference or b
    against = Distances(len(a.labels), len(columns.labels))
    identity = Distances(len(b.labels), len(columns.labels)) if reference else None
    direct = Distances(len(a.labels), len(b.labels))
    rows: list[TokenRow] = []
    samples = 0
    for one, other, layers in _aligned(a, b, reference):
        samples += 1
        against.add(one.states, (layers or other).states)
        direct.add(one.states, other.states)
        if identity is not None and layers is not None:
            identity.add(other.states, layers.states)
        if not rows:
            rows = [_row(t, one.states, other.states) for t in range(min(show, len(one.states)))]
        if limit is not None and against.tokens >= limit:
            break
    if not samples:
        raise DumpError(f"{a.folder} and {b.folder} have no sample in common")
    pairs = direct.matrix()
    matches_b = (
        _matches(identity.matrix(), columns)
        if identity is not None
        else [Match(label, loop, 0, 1, 1) for label, loop in zip(b.labels, b.loops, strict=True)]
    )
    matrix = against.matrix()
    return Comparison(
        a.labels,
        b.labels,
        columns.labels,
        matrix,
        [pairs[n][n] for n in range(min(len(a.labels), len(b.labels)))],
        _matches(matrix, columns),
        matches_b,
        against.tokens,
        samples,
        rows,
    )


def _matches(matrix: list[list[Distance]], columns: Dump) -> list[Match]:
    found = []
    for row in matrix:
        order = sorted(range(len(row)), key=lambda column: row[column].error)
        best = order[0]
        runner_up = row[order[1]].error if len(order) > 1 else float("inf")
        found.append(
            Match(
                columns.labels[best],
                columns.loops[best],
                row[best].error,
                runner_up,
                row[best].cosine,
            )
        )
    return found


def _aligned(
    a: Dump, b: Dump, reference: Dump | None
) -> Iterator[tuple[Sample, Sample, Sample | None]]:
    """Samples of the same tokens: matched by token ids, else by place."""
    if a.hidden_size != b.hidden_size:
        raise DumpError(f"A has states of width {a.hidden_size}, B of {b.hidden_size}")
    others, third = _Finder(b), _Finder(reference) if reference else None
    for place, sample in enumerate(a.samples()):
        other = others.find(sample, place)
        layers = third.find(sample, place) if third else None
        if other is None or (third and layers is None):
            continue
        tokens = min(len(one.states) for one in (sample, other, layers) if one is not None)
        yield _cut(sample, tokens), _cut(other, tokens), layers and _cut(layers, tokens)


class _Finder:
    """Finds the sample of another dump that has the same tokens, without holding that dump."""

    def __init__(self, dump: Dump) -> None:
        self._dump = dump
        self._places: dict[bytes, int] | None = None

    def find(self, sample: Sample, place: int) -> Sample | None:
        at_place = self._at(place)
        if at_place is not None and _same_tokens(sample, at_place):
            return at_place
        if sample.input_ids is None:
            return None
        if self._places is None:
            ids = (one.input_ids for one in self._dump.samples())
            self._places = {_key(x): n for n, x in enumerate(ids) if x is not None}
        found = self._places.get(_key(sample.input_ids))
        return None if found is None else self._at(found)

    def _at(self, place: int) -> Sample | None:
        return self._dump.sample(place) if place < len(self._dump) else None


def _key(ids: Array) -> bytes:
    return bytes(np.ascontiguousarray(ids, np.int64).tobytes())


def _same_tokens(a: Sample, b: Sample) -> bool:
    """Whether two samples are of one text; one may be cut shorter, and either may lack ids."""
    if a.input_ids is None or b.input_ids is None:
        return len(a.states) == len(b.states)
    shared = min(len(a.input_ids), len(b.input_ids))
    return bool(np.array_equal(a.input_ids[:shared], b.input_ids[:shared]))


def _cut(sample: Sample, tokens: int) -> Sample:
    ids = None if sample.input_ids is None else sample.input_ids[:tokens]
    return Sample(sample.id, ids, sample.states[:tokens])


def _row(token: int, a: Array, b: Array) -> TokenRow:
    return TokenRow(
        token,
        tuple(float(np.linalg.norm(state)) for state in a[token]),
        tuple(float(np.linalg.norm(state)) for state in b[token]),
        tuple(tuple(float(x) for x in state[:5]) for state in a[token]),
        tuple(tuple(float(x) for x in state[:5]) for state in b[token]),
    )
