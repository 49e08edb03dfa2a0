"""Whether two samples of tokens, or one sample and a known distribution, belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

# A dozen comparisons in a run: a healthy suite fails once in 80,000. Planted errors were seen at
# 1e-28 and below.
SIGNIFICANCE = 1e-6
FEWEST = 8  # expected count of a category; rarer ones are put together


def two_samples(first: Sequence[int], second: Sequence[int]) -> float:
    """p-value of the chi-square test that both were drawn from one distribution."""
    ours, theirs = Counter(first), Counter(second)
    both = ours + theirs
    common = [token for token, count in both.items() if count >= 2 * FEWEST]
    table = [
        [*(sample[token] for token in common), sum(sample[t] for t in both if t not in common)]
        for sample in (ours, theirs)
    ]
    columns = [column for column in zip(*table, strict=True) if sum(column)]
    if len(columns) < 2:
        return 1.0
    return float(stats.chi2_contingency(np.array(columns).T).pvalue)


def against(sample: Sequence[int], distribution: Mapping[int, float]) -> float:
    """p-value of the chi-square test that the sample was drawn from the distribution."""
    counts, size = Counter(sample), len(sample)
    common = [token for token, p in distribution.items() if p * size >= FEWEST]
    observed = [counts[token] for token in common]
    expected = [distribution[token] * size for token in common]
    rest = size - sum(expected)
    if rest >= FEWEST:
        observed.append(size - sum(observed))
        expected.append(rest)
    elif size - sum(observed) > FEWEST * 4:
        return 0.0  # far more rare tokens than could be
    scale = sum(observed) / sum(expected)
    return float(stats.chisquare(observed, [value * scale for value in expected]).pvalue)
