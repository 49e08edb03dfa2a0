"""From measured times to a choice. Pure: half of the rounds choose, the other half says how good.

A table is candidate -> size (bytes) -> microseconds of each round. Candidates: "plain" (what SGLang
chooses by itself), "nccl" and "pcie_ipc" in the plain environment, and NCCL in other environments
under their own names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

Table = Mapping[str, Mapping[int, Sequence[float]]]

KIB = 1024
DECODE = (16 * KIB, 512 * KIB)
LARGEST_DECODE = 2 * KIB * KIB
LEAST_GAIN = 0.97  # a choice that is not 3 % better is noise and not worth a setting
MOST_PREFILL_LOSS = 1.05


@dataclass(frozen=True)
class Choice:
    """nccl: the environment's name, "plain" for none. custom: whether the custom all-reduce stays.
    ipc_bytes: the largest message that PCIe-IPC takes, 0 for none. by_size: size -> candidate.
    ratio: chosen / plain over the decode sizes (geometric mean), worst: the largest of them.
    """

    nccl: str = "plain"
    custom: bool = True
    ipc_bytes: int = 0
    by_size: dict[int, str] = field(default_factory=dict)
    ratio: float = 1.0
    worst: float = 1.0

    @property
    def changes(self) -> bool:
        return self.nccl != "plain" or not self.custom or self.ipc_bytes > 0


def halves(table: Table) -> tuple[dict[str, dict[int, float]], dict[str, dict[int, float]]]:
    """Medians of the even and of the odd rounds; of all where there is one round only."""
    return _medians(table, 0), _medians(table, 1)


def _medians(table: Table, start: int) -> dict[str, dict[int, float]]:
    return {
        name: {size: median(times[start::2] or times) for size, times in sizes.items()}
        for name, sizes in table.items()
    }


def choose(table: Table, peers: bool, custom_is_plain: bool) -> Choice:
    """The best combination of what can be set.

    Args:
        peers: whether kernels that write into peers may be chosen.
        custom_is_plain: whether plain SGLang uses the custom all-reduce here.
    """
    first, second = halves(table)
    best = Choice(by_size=dict.fromkeys(first["plain"], "plain"))
    best_score = (LEAST_GAIN, 1.0)
    for option in _options(first, peers, custom_is_plain):
        # Options that are as good where it counts are told apart by all sizes up to 2 MiB.
        decode = round(_ratio(first, option.by_size)[0], 3)
        score = (decode, _ratio(first, option.by_size, (0, LARGEST_DECODE))[0])
        if score < best_score and _keeps_prefill(first, option):
            best, best_score = option, score
    ratio, worst = _ratio(second, best.by_size)
    return Choice(best.nccl, best.custom, best.ipc_bytes, best.by_size, ratio, worst)


def _options(
    times: Mapping[str, Mapping[int, float]], peers: bool, custom_is_plain: bool
) -> Iterable[Choice]:
    environments = [name for name in times if name not in ("plain", "nccl", "pcie_ipc")]
    ipc = sorted(times.get("pcie_ipc", {})) if peers else []
    for custom in [True, False] if custom_is_plain else [True]:
        for nccl in ["plain", *environments]:
            if custom and custom_is_plain and nccl != "plain":
                continue  # the custom all-reduce goes first: NCCL has only prefill
            # Behind a custom all-reduce that takes every decode size PCIe-IPC is never asked.
            for bound in [0] if custom and custom_is_plain else [0, *ipc]:
                option = Choice(nccl, custom, bound)
                yield Choice(nccl, custom, bound, _by_size(times, option, custom_is_plain))


def _by_size(
    times: Mapping[str, Mapping[int, float]], option: Choice, custom_is_plain: bool
) -> dict[int, str]:
    nccl = option.nccl
    if nccl == "plain" and custom_is_plain and not option.custom:
        nccl = "nccl"
    return {
        size: "pcie_ipc" if size <= option.ipc_bytes and size in times["pcie_ipc"] else nccl
        for size in times["plain"]
    }


def _ratio(
    times: Mapping[str, Mapping[int, float]],
    by_size: Mapping[int, str],
    within: tuple[int, int] = DECODE,
) -> tuple[float, float]:
    """(geometric mean, largest) of chosen / plain over the sizes within, decode's by default."""
    ratios = [
        times[name][size] / times["plain"][size]
        for size, name in by_size.items()
        if within[0] <= size <= within[1]
    ]
    if not ratios:
        return 1.0, 1.0
    return math.exp(sum(map(math.log, ratios)) / len(ratios)), max(ratios)


def _keeps_prefill(times: Mapping[str, Mapping[int, float]], option: Choice) -> bool:
    """Whether messages wider than any verify are not slower than plain SGLang's."""
    wide = [size for size in times["plain"] if size > LARGEST_DECODE]
    return all(
        times[option.by_size[size]][size] <= MOST_PREFILL_LOSS * times["plain"][size]
        for size in wide
    )
