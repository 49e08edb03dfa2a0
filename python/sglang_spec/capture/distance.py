"""How far two sets of states are apart, summed up over the tokens of any number of samples.

The score that decides is the median over tokens of |a - b| / |b|. A mean would be that of the few
tokens (the first one, most of all) whose states are a hundred times larger than all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .tensorfile import Array


@dataclass(frozen=True)
class Distance:
    """Of slot i of A to slot j of B, over all tokens."""

    error: float
    worst_error: float
    cosine: float
    worst_cosine: float
    norm_a: float
    norm_b: float


@dataclass
class Distances:
    """Collects every pair of slots. Memory: two floats a token and pair."""

    slots_a: int
    slots_b: int
    _errors: list[Array] = field(default_factory=list)
    _cosines: list[Array] = field(default_factory=list)
    _norms: list[tuple[Array, Array]] = field(default_factory=list)

    def add(self, a: Array, b: Array) -> None:
        """States of the same tokens: a [tokens, slots_a, hidden], b [tokens, slots_b, hidden]."""
        norm_a = np.sqrt(np.einsum("tsh,tsh->ts", a, a))
        norm_b = np.sqrt(np.einsum("tsh,tsh->ts", b, b))
        dot = np.matmul(a, b.transpose(0, 2, 1))
        pairs = np.maximum(norm_a[:, :, None] * norm_b[:, None, :], 1e-30)
        # |a - b|^2 from the products loses what is small; where it is small, it is taken directly.
        squared = norm_a[:, :, None] ** 2 + norm_b[:, None, :] ** 2 - 2 * dot
        error = np.sqrt(np.maximum(squared, 0)) / np.maximum(norm_b[:, None, :], 1e-30)
        for i, j in np.argwhere(np.median(error, axis=0) < 0.05):
            difference = a[:, i] - b[:, j]
            length = np.sqrt(np.einsum("th,th->t", difference, difference))
            error[:, i, j] = length / np.maximum(norm_b[:, j], 1e-30)
        self._errors.append(error.astype(np.float32))
        self._cosines.append((dot / pairs).astype(np.float32))
        self._norms.append((norm_a, norm_b))

    @property
    def tokens(self) -> int:
        return sum(len(part) for part in self._errors)

    def matrix(self) -> list[list[Distance]]:
        """`matrix[i][j]`: slot i of A against slot j of B."""
        errors, cosines = np.concatenate(self._errors), np.concatenate(self._cosines)
        norm_a = np.concatenate([a for a, _ in self._norms]).mean(0)
        norm_b = np.concatenate([b for _, b in self._norms]).mean(0)
        middle, most = np.median(errors, axis=0), errors.max(0)
        cosine, least = np.median(cosines, axis=0), cosines.min(0)
        return [
            [
                Distance(
                    error=float(middle[i, j]),
                    worst_error=float(most[i, j]),
                    cosine=float(cosine[i, j]),
                    worst_cosine=float(least[i, j]),
                    norm_a=float(norm_a[i]),
                    norm_b=float(norm_b[j]),
                )
                for j in range(self.slots_b)
            ]
            for i in range(self.slots_a)
        ]
