"""Writes the table of `docs/contract.md` from `faults` and `plain_faults.json`.

`python -m kit.contract_table` (from `test/`) renews it; a unit test fails when it is stale.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kit.faults import FAULTS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "contract.md"
RECORD = Path(__file__).with_name("plain_faults.json")
BEGIN, END = "<!-- table of faults: written by kit.contract_table -->", "<!-- end of the table -->"


def table() -> str:
    record: dict[str, Any] = json.loads(RECORD.read_text())
    seen = record["faults"]
    lines = [
        f"Plain SGLang 0.5.23 as seen on {record['date']}, on the CPU, with the tiny pair (accept "
        "length 4.00 where nothing is wrong, 2.00 with its reduced vocabulary).",
        "",
        "| faulty pair | refused as | plain SGLang | its words |",
        "|---|---|---|---|",
    ]
    for fault in FAULTS:
        plain = seen.get(fault.name, {"outcome": "not tried", "text": "needs a GPU"})
        text = plain["text"].replace("|", "/")
        short = text if len(text) <= 90 else text[:87] + "..."
        lines.append(f"| {fault.name} | `{fault.code}` | {plain['outcome']} | {short} |")
    return "\n".join(lines)


def renewed(page: str) -> str:
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
