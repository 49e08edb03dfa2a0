"""Queries and keys that attend at one exact distance, through rotary position embedding alone.

A key is the same at every position; rotation makes its score a sum of cosines of the distance.
Half of the weight lies on the fastest rotation, the rest on the next eleven: over 4,096 positions
every other distance then scores at least 0.23 of the peak lower (see `gap`). The eight slowest
rotations hardly turn and serve as a constant. Scores, after the usual scaling:

    a row of zeros       0      a hole in the KV cache wins over everything, and brings nothing
    the exact distance  -25
    BOS                 -50     where the distance reaches before the start
    any other row       -80 or less
"""

from __future__ import annotations

import math

HEAD_DIM = 64
THETA = 1_000_000.0
PEAK = 240.0
MATCH, SINK = -25.0, -50.0

_PAIRS = HEAD_DIM // 2
_TURNING = range(12)
_STILL = range(_PAIRS - 8, _PAIRS)
_WEIGHTS = {pair: 0.5 if pair == 0 else 0.5 / 11 for pair in _TURNING}


def turn(pair: int) -> float:
    """Radians that a rotary pair turns by per position."""
    return float(THETA ** (-pair / _PAIRS))


def query(distance: int) -> list[float]:
    """Query of a head that looks `distance` positions back, [head_dim], before rotation."""
    vector = [0.0] * HEAD_DIM
    for pair in _TURNING:
        angle = -turn(pair) * distance
        vector[pair] = _size(PEAK * _WEIGHTS[pair]) * math.cos(angle)
        vector[pair + _PAIRS] = _size(PEAK * _WEIGHTS[pair]) * math.sin(angle)
    for pair in _STILL:
        vector[pair] = _size(-_constant() / len(_STILL))
    return vector


def key() -> list[float]:
    """Key of every row but the first, [head_dim], before rotation."""
    vector = [0.0] * HEAD_DIM
    for pair in _TURNING:
        vector[pair] = _size(PEAK * _WEIGHTS[pair])
    for pair in _STILL:
        vector[pair] = -_size(-_constant() / len(_STILL))
    return vector


def first_key() -> list[float]:
    """Key of the BOS row: at no distance in particular, [head_dim]."""
    vector = [0.0] * HEAD_DIM
    share = SINK / _constant()
    for pair in _STILL:
        vector[pair] = -_size(-_constant() / len(_STILL)) * share
    return vector


def gap(positions: int) -> float:
    """Score between the exact distance and the best other one, over that many positions."""
    return min(
        PEAK * sum(w * (1 - math.cos(turn(pair) * off)) for pair, w in _WEIGHTS.items())
        for off in range(1, positions)
    )


def _constant() -> float:
    """Score that every row has besides the cosines; negative, so that zeros score higher."""
    return MATCH - PEAK


def _size(score: float) -> float:
    """Length of a query's and of a key's part whose product scores `score`."""
    return math.sqrt(score * math.sqrt(HEAD_DIM))
