"""Every faulty pair is refused with the expected code and words; the bases are accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.faults import FAULTS, Fault
from sglang_spec.hardening.contract import Settings, check_pair
from sglang_spec.models.embedded import embedded_pair
from sglang_spec.models.pair import Pair


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_refused(fault: Fault, tiny: Pair, tiny_half: Pair, tmp_path: Path) -> None:
    pair = fault.make(tiny_half if fault.reduced else tiny, tmp_path)
    settings = Settings(algorithm=fault.algorithm, **fault.settings)
    report = check_pair(pair.target, None if fault.drop else pair.draft, settings)
    assert not report.accepted
    assert report.slots == ()
    problem = report.problems[0]
    assert problem.code == fault.code, report.error_text()
    assert fault.says in str(problem)
    assert problem.file and problem.key and problem.remedy
    assert len({p.key for p in report.problems}) == len(report.problems), report.error_text()


def test_there_are_enough_faults() -> None:
    assert len(FAULTS) >= 40
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_bases_are_accepted(tiny: Pair, tiny_half: Pair) -> None:
    expected = {tiny: [1, 3, 5], tiny_half: [1, 3, 5], embedded_pair(): [3, 15, 27]}
    for pair, layers in expected.items():
        report = check_pair(pair.target, pair.draft)
        assert report.accepted, report.error_text()
        assert [slot.takes for slot in report.slots] == [f"output of layer {n}" for n in layers]
        assert [slot.loop_index for slot in report.slots] == [n + 1 for n in layers]
