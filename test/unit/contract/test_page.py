"""`docs/contract.md` shows what the records say."""

from __future__ import annotations

import json

from kit.contract_table import PAGE, RECORD, renewed
from kit.faults import FAULTS


def test_table_is_current() -> None:
    page = PAGE.read_text()
    assert renewed(page) == page, "run `python -m kit.contract_table` in test/"


def test_plain_upstream_was_tried_with_every_fault() -> None:
    seen = json.loads(RECORD.read_text())["faults"]
    assert {fault.name for fault in FAULTS if fault.launchable} == set(seen)
