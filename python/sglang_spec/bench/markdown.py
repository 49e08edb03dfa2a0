"""The summary of a run for people: Markdown, one table a cell, the provenance at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DASH = "-"
HEADINGS = (
    "side",
    "tok/s",
    "speedup",
    "predicted",
    "accept length",
    "by position",
    "cycles/s",
    "TTFT ms",
    "ITL ms",
    "equal answers",
)


def summary(made: Mapping[str, Any]) -> str:
    """All of `output.figures` but the raw lists."""
    base = made["baseline"]
    lines = ["# Speculation measured", ""]
    if made["partial"]:
        lines += [f"**Partial: {made['partial']}.**", ""]
    lines += [
        f"Speedups are against `{base}`, over the rounds that both measured, with their 95 % "
        "interval. Accept length has the bonus token in it; cycles are those of single requests. "
        "An invalid measurement is no speed.",
        "",
    ]
    for cell, sides in made["cells"].items():
        lines += [f"## {title(cell)}", "", _row(HEADINGS), _row(["---"] * len(HEADINGS))]
        rows = [columns(name, one) for name, one in sides.items()]
        lines += [_row(row[heading] for heading in HEADINGS) for row in rows]
        reasons = [f"- `{name}` is invalid: {why}" for name, one in sides.items()
                   for why in one["invalid"]]  # fmt: skip
        reasons += [f"- `{name}`, predicted: {phases(one['predicted'])}"
                    for name, one in sides.items() if one["predicted"]]  # fmt: skip
        lines += ["", *([*reasons, ""] if reasons else [])]
    for name, why in made["failed"].items():
        lines += [f"- `{name}` could not be measured: {why.splitlines()[-1]}"]
    return "\n".join([*lines, *_provenance(made["provenance"])]) + "\n"


def title(cell: str) -> str:
    """A cell's key in words."""
    context, closed, concurrency = cell.partition("x")
    if closed:
        return f"{context} prompt tokens, {concurrency} at a time"
    context, _, rate = cell.partition("@")
    return f"{context} prompt tokens, {rate} requests a second"


def columns(name: str, one: Mapping[str, Any]) -> dict[str, str]:
    """The figures of a side in a cell as texts, by heading."""
    predicted, equality, speed = one["predicted"], one["equality"], one["tok_s"]
    positions = " ".join(f"{share:.2f}" for share in one["position_acceptance"])
    return {
        "side": f"`{name}`",
        "tok/s": f"{speed['mean']:.1f} ± {speed['half_width']:.1f}" if speed else DASH,
        "speedup": interval(one["speedup"]) if one["valid"] else "invalid",
        "predicted": f"{predicted['speedup']:.2f}" if predicted else DASH,
        "accept length": _number(one["accept_length"], 2),
        "by position": positions or DASH,
        "cycles/s": _number(one["cycles_per_s"] if one["accept_length"] else None, 1),
        "TTFT ms": _number(one["mean_ttft_ms"], 0),
        "ITL ms": _number(one["mean_itl_ms"], 1),
        "equal answers": _equal(equality) if equality else DASH,
    }


def _number(value: float | None, digits: int) -> str:
    return DASH if value is None else f"{value:.{digits}f}"


def phases(predicted: Mapping[str, Any]) -> str:
    """Milliseconds of a plain step and a cycle, and what the cycle is made of."""
    shares = ", ".join(
        f"{phase.replace('_', '-')} {share:.0%}"
        for phase, share in predicted["phase_shares"].items()
    )
    beyond = "; beyond what was measured" if predicted["extrapolated"] else ""
    return (
        f"a plain step {predicted['step_ms']:.2f} ms, a cycle {predicted['cycle_ms']:.2f} ms: "
        f"{shares}{beyond}"
    )


def interval(ratio: Mapping[str, Any] | None) -> str:
    """`1.62 (1.58 to 1.66)`; a dash where there is no ratio."""
    if ratio is None:
        return DASH
    if ratio["low"] is None:
        return f"{ratio['ratio']:.2f} (one round)"
    return f"{ratio['ratio']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _equal(equality: Mapping[str, int]) -> str:
    text = f"{equality['equal']} of {equality['compared']}"
    if equality["ties"]:
        text += f", {equality['ties']} ties"
    return text + (f", {equality['wrong']} WRONG" if equality["wrong"] else "")


def _provenance(told: Mapping[str, Any]) -> list[str]:
    host, pin = told["host"], told["pin"]
    where = host["gpu"] or f"{host['cpu']}, {host['cores']} cores, no GPU"
    packages = ", ".join(f"{name} {version}" for name, version in host["packages"].items())
    lines = [
        "## Provenance",
        "",
        f"- {told['date']}; {where}; driver {host['driver'] or 'none'}; Python {host['python']}",
        f"- SGLang {pin['version']}+spec.{pin['spec']}, patch set `{pin['patch_set']}`"
        + (f", changed files: {', '.join(pin['changed'])}" if pin["changed"] else ""),
        f"- {packages}",
        f"- prompts: {told['corpus']['source']}, {told['corpus']['texts']} texts",
    ]
    for kind, one in told["checkpoints"].items():
        lines.append(f"- {kind}: {one['name']}, sha256 `{one['sha256']}`")
    for name, one in told["sides"].items():
        lines.append(f"- `{name}`: `{one.get('command') or one.get('url')}`")
    return lines


def _row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"
