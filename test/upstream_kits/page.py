"""docs/upstream-kits.md, made from the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .kits import KITS
from .record import FAILED, NOT_RUN, failures
from .servers import CONTROL, PATCHED, PLAIN

HEAD = """# Upstream's own test kits

Made by `make test-upstream` from `test/results/upstream_kits.json`; not to be edited.

The kits are those that ship in the pinned wheel (`sglang/test/kits`). They run unmodified, against
servers of the embedded pair: the patched tree and the plain one, both with EAGLE3 (3 steps, topk 1,
4 draft tokens), and the plain one without speculation, which tells what is the model's doing:
135 million parameters do not multiply 17 by 23. A cell says how many tests passed of those that
ran. Classes that use a kit choose some figures; those chosen here are below the table.

The wheel ships no unit tests of speculative decoding: its other `test_*.py` are helpers, storage
back ends, and image and video generation.
"""


def write(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(text(content))


def text(content: Mapping[str, Any]) -> str:
    devices = sorted(content["provenance"])
    parts = [HEAD]
    for device in devices:
        parts += _device(content, device)
    return "\n".join(parts).rstrip() + "\n"


def _device(content: Mapping[str, Any], device: str) -> list[str]:
    about = content["provenance"][device]
    gpus = ", ".join(gpu["name"] for gpu in about["gpus"])
    load = f"load average {about['load_average']}"
    where = gpus or f"{about['cpu_cores']} cores, no AMX, {load}"
    pin, patch_set = about[PATCHED]["sglang"], str(about[PATCHED]["patch_set"])[:12]
    rows = {key: found[device] for key, found in content["kits"].items() if device in found}
    ran = {key: row for key, row in rows.items() if not _left_out(row)}
    lines = [
        f"## {'GPU' if device == 'gpu' else 'CPU'}",
        "",
        f"{about['date'][:10]}, {where}; {pin}, patch set {patch_set}, backend {about['backend']}.",
        *_plain_with(about[PLAIN]["patches"]),
        "",
        f"| kit | {PATCHED} | {PLAIN} | {CONTROL} |",
        "|---|---|---|---|",
        *(
            f"| `{key}` | {_cell(row, PATCHED)} | {_cell(row, PLAIN)} | {_cell(row, CONTROL)} |"
            for key, row in ran.items()
        ),
        "",
    ]
    lines += _starts(ran) + _failed(ran) + _cut_off(ran) + _chosen(ran)
    left = [f"`{kit.key}`" for kit in KITS if kit.key not in rows]
    if left:
        lines += ["Not run yet on this device: " + ", ".join(left) + ".", ""]
    lines += ["Not run:", ""]
    lines += [f"- `{key}`: {row[PATCHED]['reason']}" for key, row in rows.items() if _left_out(row)]
    return [*lines, ""]


def _plain_with(patches: Sequence[str]) -> list[str]:
    """What the plain tree of a host had to be given."""
    return [f"Plain has {', '.join(patches)}: without it EAGLE3 does not start here."] * bool(
        patches
    )


def _left_out(row: Mapping[str, Any]) -> bool:
    return bool(row.get(PATCHED, {}).get("outcome") == NOT_RUN)


def _cell(row: Mapping[str, Any], variant: str) -> str:
    one = row.get(variant)
    if one is None:
        return "not run"
    if one["outcome"] == NOT_RUN:
        return "does not start" if one["reason"].startswith("does not start") else "not run"
    total = len(one["passed"]) + len(one["failed"])
    return f"{'**' * (one['outcome'] == FAILED)}{len(one['passed'])}/{total}" + (
        "**" if one["outcome"] == FAILED else ""
    )


def _starts(rows: Mapping[str, Any]) -> list[str]:
    """What a variant says that does not start."""
    said = {
        (variant, row[variant]["reason"])
        for row in rows.values()
        for variant in (PLAIN, CONTROL)
        if variant in row and row[variant]["outcome"] == NOT_RUN
    }
    lines = [f"- {variant}: {reason}" for variant, reason in sorted(said)]
    return ["Servers that did not start:", "", *lines, ""] if lines else []


def _failed(rows: Mapping[str, Any]) -> list[str]:
    lines = []
    for key, row in rows.items():
        for test, message in failures(row, PATCHED).items():
            others = [
                f"fails {'on plain' if variant == PLAIN else variant} too"
                for variant in (PLAIN, CONTROL)
                if test in failures(row, variant)
            ]
            passes = [
                f"passes {'on plain' if variant == PLAIN else variant}"
                for variant in (PLAIN, CONTROL)
                if test in row.get(variant, {}).get("passed", ())
            ]
            shown = message.replace("|", "\\|")[:200]
            also = "; ".join([*others, *passes]) or "was not run on plain"
            lines.append(f"- `{key}.{test}`: {shown}. It {also}.")
    return ["Failed on the patched tree:", "", *lines, ""] if lines else []


def _cut_off(rows: Mapping[str, Any]) -> list[str]:
    lines = [
        f"- `{key}.{test}`: {message}"
        for key, row in rows.items()
        for test, message in row.get(PATCHED, {}).get("cut_off", {}).items()
    ]
    return (
        ["Too slow for this host, so neither passed nor failed:", "", *lines, ""] if lines else []
    )


def _chosen(rows: Mapping[str, Any]) -> list[str]:
    lines = [
        f"- `{key}`: " + ", ".join(f"{name} = {value}" for name, value in row["chosen"].items())
        for key, row in rows.items()
        if "chosen" in row
    ]
    return ["Figures chosen:", "", *lines, ""] if lines else []
