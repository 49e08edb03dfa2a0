"""Ratios of repeated measurements, with the bound under which they lie in one case of forty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy
from scipy import stats

CONFIDENCE = 0.975  # of the lower bound


@dataclass(frozen=True)
class Ratio:
    """`low` is the one-sided lower bound; None with fewer than two measurements on either side."""

    ratio: float
    low: float | None

    def as_dict(self) -> dict[str, float | None]:
        return {
            "ratio": round(self.ratio, 4),
            "low": None if self.low is None else round(self.low, 4),
        }


def spread(values: Sequence[float]) -> dict[str, float | int]:
    """Mean and half width of its 95 % interval (0 for a single value)."""
    count = len(values)
    mean = float(numpy.mean(values))
    half = 0.0
    if count > 1:
        half = float(stats.sem(values) * stats.t.ppf(CONFIDENCE, count - 1))
    return {"mean": round(mean, 3), "half_width": round(half, 3), "count": count}


def ratio(above: Mapping[object, float], below: Mapping[object, float]) -> Ratio:
    """`above` over `below`, each by round: rounds that both have are compared with each other.

    Logarithms, so that a half and a double are equally far from 1. With two or more rounds in
    common the mean of the paired differences, else the difference of the means (Welch).
    """
    both = [key for key in above if key in below]
    if len(both) >= 2:
        differences = [math.log(above[key] / below[key]) for key in both]
        mean, error = float(numpy.mean(differences)), float(stats.sem(differences))
        return _ratio(mean, error, len(both) - 1)
    first, second = ([math.log(value) for value in side.values()] for side in (above, below))
    mean = float(numpy.mean(first) - numpy.mean(second))
    if min(len(first), len(second)) < 2:
        return Ratio(math.exp(mean), None)
    parts = [float(stats.sem(side)) ** 2 for side in (first, second)]
    error = math.sqrt(sum(parts))
    if error == 0:
        return Ratio(math.exp(mean), math.exp(mean))
    freedom = error**4 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (first, second), strict=True)
    )
    return _ratio(mean, error, freedom)


@dataclass(frozen=True)
class Median:
    """`low` and `high` are values between which the true median lies in 95 of 100 cases.

    No shape of the distribution is assumed, so a few measurements that were disturbed move neither.
    Both are None of fewer than six values, which cannot say as much.
    """

    value: float
    low: float | None
    high: float | None


def chance(first: Sequence[float], second: Sequence[float]) -> float | None:
    """How likely two samples of one mean are as far apart as these (Welch's test), from 0 to 1.

    None with fewer than two values in either.
    """
    if min(len(first), len(second)) < 2:
        return None
    if len({*first, *second}) == 1:
        return 1.0
    if len(set(first)) == len(set(second)) == 1:
        return 0.0  # neither has a spread that the difference could be
    return float(stats.ttest_ind(first, second, equal_var=False).pvalue)


def median(values: Sequence[float]) -> Median:
    """Of values that are independent of each other."""
    line = sorted(values)
    outside = int(stats.binom.ppf(1 - CONFIDENCE, len(line), 0.5))  # on each side
    middle = float(numpy.median(line))
    if not outside:
        return Median(middle, None, None)
    return Median(middle, line[outside - 1], line[-outside])


def geometric_mean(ratios: Sequence[float]) -> float:
    return float(stats.gmean(ratios))


def _ratio(mean: float, error: float, freedom: float) -> Ratio:
    low = mean - error * float(stats.t.ppf(CONFIDENCE, freedom)) if error else mean
    return Ratio(math.exp(mean), math.exp(low))
