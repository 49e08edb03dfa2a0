"""A plan as the lines of a log and of `doctor comm`: at most 100 columns, plain text."""

from __future__ import annotations

import textwrap

from .library import size_text
from .plan import Plan

WIDTH = 100
_NAMES = {
    "fusion": "all-reduce fusion",
    "custom_all_reduce": "custom all-reduce",
    "pcie_ipc": "PCIe-IPC all-reduce",
    "symmetric_memory": "NCCL symmetric memory",
    "nvls": "NVLS",
    "torch_symmetric_memory": "torch symmetric memory",
    "mscclpp": "MSCCL++",
}
_CHANGES = ("plan", "measured")


def lines(plan: Plan) -> list[str]:
    """What reduces which message, then every setting with who set it and why."""
    found = [f"Communication: {plan.chip}, {plan.fabric}", *_messages(plan)]
    suffix = "" if plan.applied else ", with --speculative-comm-plan auto"
    silent = []
    for choice in plan.choices:
        if not choice.on and choice.why.startswith("without --"):
            silent.append(_NAMES[choice.name])
            continue
        state = "on" if choice.on else "off"
        by = f" [{choice.by}{suffix}]" if choice.by in _CHANGES else f" [{choice.by}]"
        detail = f" ({choice.detail})" if choice.detail else ""
        found += _wrapped(f"{_NAMES[choice.name]}: {state}{detail}{by} {choice.why}")
    if silent:
        found += _wrapped(f"off, not asked for: {', '.join(silent)}")
    for variable in plan.variables:
        by = variable.by + (suffix if variable.by in _CHANGES else "")
        found += _wrapped(f"{variable.name}={variable.value} [{by}] {variable.why}")
    found += [line for text in plan.warnings for line in _wrapped(f"WARNING: {text}")]
    found += [line for one in plan.refusals for line in _wrapped(f"REFUSED: {one.line}")]
    return found


def _messages(plan: Plan) -> list[str]:
    rows = [
        (one.what, size_text(one.bytes), one.graph, one.eager if one.eager != one.graph else "same")
        for one in plan.rows
    ]
    rows.insert(0, ("message", "size", "in graphs", "eager"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    why = ["why", *(one.why for one in plan.rows)]
    return [
        f"  {row[0]:{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:{widths[2]}}  "
        f"{row[3]:{widths[3]}}  {reason}"
        for row, reason in zip(rows, why, strict=True)
    ]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False
    )
