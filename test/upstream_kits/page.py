"""docs/upstream-kits.md, made from the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .compare import Row, better, failures, flaky, rows, shares, verdict
from .kits import KITS
from .reasons import REASONS
from .record import FAILED, NOT_RUN
from .servers import CONTROL, PATCHED, PLAIN, VARIANTS

HEAD = """# Upstream's own test kits

Made by `make test-upstream` from `test/results/upstream_kits.json`; not to be edited.

The kits are those that ship in the pinned wheel (`sglang/test/kits`). They run unmodified, against
servers of the embedded pair: the patched tree and the plain one, both with EAGLE3 (3 steps, topk 1,
4 draft tokens), and the plain one without speculation, which tells what is the model's doing:
135 million parameters do not multiply 17 by 23. A cell says how many tests passed of those that
ran in time. Classes that use a kit choose some figures; those chosen here are below the table.
`--due` runs what the record does not have of this code, `--test NAME --repeat N` for flaky ones.

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
    every = rows(content, device)
    ran = {key: row for key, row in every.items() if not _left_out(row)}
    where = gpus or f"{about['cpu_cores']} cores, no AMX, load average {_load(about, ran)}"
    pin, patch_set = about[PATCHED]["sglang"], str(about[PATCHED]["patch_set"])[:12]
    lines = [
        f"## {'GPU' if device == 'gpu' else 'CPU'}",
        "",
        f"{about['date'][:10]}, {where}; {pin}, patch set {patch_set}, backend {about['backend']}.",
        *_plain_with(about[PLAIN]["patches"]),
        *_codes(ran),
        "",
        verdict(content, device),
        "",
        f"| kit | {PATCHED} | {PLAIN} | {CONTROL} |",
        "|---|---|---|---|",
        *(
            f"| `{key}` | {_cell(row, PATCHED)} | {_cell(row, PLAIN)} | {_cell(row, CONTROL)} |"
            for key, row in ran.items()
        ),
        "",
    ]
    lines += _starts(ran) + _failed(ran) + _flaky(ran) + _better(content, device)
    lines += _cut_off(ran) + _chosen(ran)
    left = [f"`{kit.key}`" for kit in KITS if kit.key not in every]
    if left:
        lines += ["Not run yet on this device: " + ", ".join(left) + ".", ""]
    lines += ["Not run:", ""]
    lines += [
        f"- `{key}`: {row[PATCHED]['reason']}" for key, row in every.items() if _left_out(row)
    ]
    return [*lines, ""]


def _plain_with(patches: Sequence[str]) -> list[str]:
    """What the plain tree of a host had to be given."""
    return [f"Plain has {', '.join(patches)}: without it EAGLE3 does not start here."] * bool(
        patches
    )


def _load(about: Mapping[str, Any], ran: Mapping[str, Row]) -> str:
    """The least and the greatest of what the runs had."""
    loads = sorted(
        {row[name]["load"] for row in ran.values() for name in row if "load" in row[name]}
    )
    if len(loads) > 1:
        return f"{loads[0]} to {loads[-1]}"
    return str(about["load_average"])


def _codes(ran: Mapping[str, Row]) -> list[str]:
    """Which code the patched rows are of: one, or how many rows of each."""
    own = [row[PATCHED] for row in ran.values() if PATCHED in row]
    counted = Counter(entry.get("code", "not noted") for entry in own)
    each = ", ".join(f"`{code}` ({count} kits)" for code, count in counted.most_common())
    return [f"Patched rows by code (patch set/own modules): {each}."] if len(counted) > 1 else []


def _left_out(row: Mapping[str, Any]) -> bool:
    return bool(row.get(PATCHED, {}).get("outcome") == NOT_RUN)


def _cell(row: Mapping[str, Any], variant: str) -> str:
    one = row.get(variant)
    if one is None:
        return "not run"
    if one["outcome"] == NOT_RUN:
        return "does not start" if one["reason"].startswith("does not start") else "not run"
    bold = "**" * (one["outcome"] == FAILED)
    part = " in part" * one.get("part", False)
    return f"{bold}{len(one['passed'])}/{len(shares(row, variant))}{bold}{part}"


def _starts(rows: Mapping[str, Row]) -> list[str]:
    """What a variant says that does not start."""
    said = {
        (variant, row[variant]["reason"])
        for row in rows.values()
        for variant in (PLAIN, CONTROL)
        if variant in row and row[variant]["outcome"] == NOT_RUN
    }
    lines = [f"- {variant}: {reason}" for variant, reason in sorted(said)]
    return ["Servers that did not start:", "", *lines, ""] if lines else []


def _shown(message: str) -> str:
    return message.replace("|", "\\|")[:200]


def _failed(rows: Mapping[str, Row]) -> list[str]:
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
            shown = _shown(message)
            also = "; ".join([*others, *passes]) or "was not run on plain"
            lines.append(f"- `{key}.{test}`: {shown}. It {also}.{_why(key, test)}")
    return ["Failed on the patched tree:", "", *lines, ""] if lines else []


def _why(key: str, test: str) -> str:
    reason = REASONS.get(f"{key}.{test}")
    return f" Why: {reason}." if reason else ""


def _flaky(rows: Mapping[str, Row]) -> list[str]:
    lines = []
    for key, row in rows.items():
        for test in {test: None for variant in VARIANTS for test in flaky(row, variant)}:
            counts = ", ".join(
                f"{variant} {_count(row, variant, test)}"
                for variant in VARIANTS
                if test in shares(row, variant)
            )
            lines.append(f"- `{key}.{test}`: passed {counts}.{_why(key, test)}")
    return ["Flaky:", "", *lines, ""] if lines else []


def _count(row: Row, variant: str, test: str) -> str:
    """How often it passed, of how many runs."""
    one = flaky(row, variant).get(test)
    if one is not None:
        return f"{one['passed']} of {one['of']}"
    return "always" if shares(row, variant)[test] else "never"


def _better(content: Mapping[str, Any], device: str) -> list[str]:
    found = better(content, device).items()
    lines = [f"- `{test}`: on plain {_shown(message)}" for test, message in found]
    return ["Passed patched, failed on plain:", "", *lines, ""] if lines else []


def _cut_off(rows: Mapping[str, Row]) -> list[str]:
    lines = [
        f"- `{key}.{test}`: {message}"
        for key, row in rows.items()
        for test, message in row.get(PATCHED, {}).get("cut_off", {}).items()
    ]
    return (
        ["Too slow for this host, so neither passed nor failed:", "", *lines, ""] if lines else []
    )


def _chosen(rows: Mapping[str, Row]) -> list[str]:
    lines = [
        f"- `{key}`: " + ", ".join(f"{name} = {value}" for name, value in row["chosen"].items())
        for key, row in rows.items()
        if "chosen" in row
    ]
    return ["Figures chosen:", "", *lines, ""] if lines else []
