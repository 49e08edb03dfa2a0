"""Patched beside plain: which tests are worse, which better, and what that comes to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from .kits import KITS
from .servers import CONTROL, PATCHED, PLAIN

_PLACE = {kit.key: place for place, kit in enumerate(KITS)}
Row = Mapping[str, Any]  # of one kit on one device: entries by variant


def failures(row: Row, variant: str) -> dict[str, str]:
    """Tests that failed every time, and their messages."""
    return {one["test"]: one["message"] for one in row.get(variant, {}).get("failed", ())}


def flaky(row: Row, variant: str) -> dict[str, Mapping[str, Any]]:
    """Tests that failed sometimes: `passed` of `of` runs, and the first message."""
    return {one["test"]: one for one in row.get(variant, {}).get("flaky", ())}


def shares(row: Row, variant: str) -> dict[str, Fraction]:
    """How often each test passed, of the runs that ended in time."""
    found = dict.fromkeys(row.get(variant, {}).get("passed", ()), Fraction(1))
    found |= dict.fromkeys(failures(row, variant), Fraction(0))
    for test, one in flaky(row, variant).items():
        found[test] = Fraction(one["passed"], one["of"])
    return found


def rows(content: Mapping[str, Any], device: str) -> dict[str, Row]:
    """By kit, in the order in which they are listed."""
    found = {key: devices[device] for key, devices in content["kits"].items() if device in devices}
    return dict(sorted(found.items(), key=lambda pair: _PLACE.get(pair[0], len(_PLACE))))


def _pairs(content: Mapping[str, Any], device: str) -> Iterator[tuple[str, str, Row, str]]:
    """Kit, test, row, and the variant that a test is compared with: plain, or without speculation
    where plain does not start."""
    for key, row in rows(content, device).items():
        starts = row.get(PLAIN, {}).get("outcome") != "not run"
        other = PLAIN if starts else CONTROL
        for test in shares(row, PATCHED):
            yield key, test, row, other


def worse(content: Mapping[str, Any], device: str) -> list[str]:
    """Tests that pass less often patched. One that is flaky patched is no worse than one that is
    flaky on plain, or without speculation: it draws its answer, and so it should."""
    found = []
    for key, test, row, other in _pairs(content, device):
        here, there = shares(row, PATCHED)[test], shares(row, other).get(test)
        if there is None or here >= there:
            continue
        if not (here > 0 and (there < 1 or _drawn(row, test))):
            said = failures(row, PATCHED).get(test) or flaky(row, PATCHED)[test]["message"]
            found.append(f"{key}.{test}: {said}")
    return found


def _drawn(row: Row, test: str) -> bool:
    """Whether it passes sometimes, patched and also without speculation."""
    return test in flaky(row, PATCHED) and test in flaky(row, CONTROL)


def better(content: Mapping[str, Any], device: str) -> dict[str, str]:
    """Tests that pass patched and fail, or failed sometimes, on plain; with what they said."""
    found = {}
    for key, row in rows(content, device).items():
        there = shares(row, PLAIN)
        for test, share in shares(row, PATCHED).items():
            if share == 1 and there.get(test, 1) < 1:
                said = failures(row, PLAIN).get(test) or flaky(row, PLAIN)[test]["message"]
                found[f"{key}.{test}"] = said
    return found


def verdict(content: Mapping[str, Any], device: str) -> str:
    """What came out, in two sentences."""
    ours: Sequence[tuple[str, str, Row, str]] = list(_pairs(content, device))
    both = [(key, test, row) for key, test, row, _ in ours if test in shares(row, PLAIN)]
    if not both:
        return "No test was run both patched and on plain."
    bad = worse(content, device)
    first = "Patched was never worse than plain: "
    if bad:
        names = ", ".join(f"`{line.partition(':')[0].rpartition('.')[2]}`" for line in bad)
        first = f"**Patched was worse than plain in {len(bad)}** ({names}, see below): "
    each = [(shares(row, PATCHED)[test], shares(row, PLAIN)[test]) for _, test, row in both]
    counts = {
        "passed on both": sum(here == there == 1 for here, there in each),
        "passed only patched": sum(here == 1 > there for here, there in each),
        "failed on both": sum(here == there == 0 for here, there in each),
        "flaky on one of them": sum(0 < here < 1 or 0 < there < 1 for here, there in each),
    }
    text = first + f"of the {len(both)} tests that ran on both, "
    text += ", ".join(f"{count} {name}" for name, count in counts.items() if count) + "."
    for _, test, row in both:
        if _drawn(row, test) and shares(row, PLAIN)[test] == 1:
            text += f" `{test}` passes always on plain and sometimes both patched and without"
            text += " speculation: see below."
    only = len(ours) - len(both)
    if only:
        text += f" {only} {'test' if only == 1 else 'tests'} ran patched and not on plain."
    model = [
        test
        for _, test, row in both
        if shares(row, PATCHED)[test] == shares(row, PLAIN)[test] == 0
        and shares(row, CONTROL).get(test) == 0
    ]
    if model:
        text += f" Of those that failed on both, {len(model)} fail without speculation too."
    return text
