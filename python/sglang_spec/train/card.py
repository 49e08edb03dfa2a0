"""The card of a draft: what it was made of, how long it took, how far it is accepted. No torch."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def spread(values: Sequence[float]) -> dict[str, float]:
    """Least, mean and most of the runs; the sample deviation where there are two or more."""
    found = {"least": min(values), "mean": statistics.fmean(values), "most": max(values)}
    if len(values) > 1:
        found["deviation"] = statistics.stdev(values)
    return {name: round(value, 4) for name, value in found.items()}


def spreads(reports: Mapping[int, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The spread over seeds of every accept length of their evaluations."""
    some = next(iter(reports.values()))
    places = {
        "all": ("all",),
        "without loops": ("without_loops",),
        "first 64 tokens": ("first_64_tokens",),
        **{kind: ("kinds", kind) for kind in some["kinds"]},
    }
    return {
        name: spread([_length(report, place) for report in reports.values()])
        for name, place in places.items()
    }


def _length(report: Mapping[str, Any], place: Sequence[str]) -> float:
    found: Any = report
    for key in place:
        found = found[key]
    return float(found["accept_length"])


def write(
    title: str,
    summary: Mapping[str, Any],
    reports: Mapping[int, Mapping[str, Any]],
    shipped: int,
) -> str:
    """The card as Markdown.

    Args:
        summary: what summary.json holds: `prompts`, `answers`, `runs` by seed, `recipe`, `draft`, …
        reports: evaluations by seed; `shipped` is the seed whose weights lie beside the card.
    """
    shape, prompts, answers = summary["draft"], summary["prompts"], summary["answers"]
    runs = summary["runs"]
    lines = [
        f"# {title}",
        "",
        summary["about"],
        "",
        f"Made by `sglang-spec train all --recipe {summary['recipe']}`; seed {shipped} is the one "
        "shipped, because it is the first of the recipe, not because it is the best.",
        "",
        "| file | sha256 |",
        "|---|---|",
        *(f"| `{name}` | `{digest}` |" for name, digest in summary["files"].items()),
        "",
        "## Shape",
        "",
        f"One layer, {shape['heads']} query and {shape['kv_heads']} KV heads of "
        f"{shape['head_dim']}, intermediate {shape['intermediate']}; outputs of target layers "
        f"{', '.join(map(str, shape['layers']))} in this order; {shape['vocabulary']} tokens, "
        f"{summary['coverage']:.2%} of those in the answers.",
        "",
        "## Data",
        "",
        f"{answers['answers']} answers of the target itself, {answers['tokens'] / 1e6:.1f} M "
        f"tokens, in {answers['seconds'] / 60:.1f} minutes, at temperatures "
        f"{', '.join(f'{one:g}' for one in summary['temperatures'])}. Prompts: "
        + ", ".join(f"{count} {kind}" for kind, count in prompts["prompts"].items())
        + f" from the text of installed packages and from lists of words (sha256 "
        f"`{prompts['sha256'][:12]}…`), and {summary['self_written']} user turns that the target "
        f"wrote. Not one of the former shares twelve words in a row with a held-out prompt "
        f"({prompts['left_out']} were left out for that).",
        "",
        "| text of | version | licence |",
        "|---|---|---|",
        *(f"| {p['name']} | {p['version']} | {p['licence']} |" for p in prompts["packages"]),
        "",
        "## Training",
        "",
        "| seed | steps | million tokens learned | passes | minutes | device |",
        "|---|---|---|---|---|---|",
        *(
            f"| {seed} | {run['step']} | {run['tokens'] / 1e6:.1f} | {run['epoch'] + 1} | "
            f"{run['seconds'] / 60:.1f} | {run['device']} |"
            for seed, run in runs.items()
        ),
        "",
        "![curves](curves.png)",
        "",
        "## Measured",
        "",
        f"Accept length (bonus token included) on {reports[shipped]['answers']} held-out prompts, "
        f"greedy, {reports[shipped]['num_steps']} steps, pooled over cycles.",
        "",
        *_table(reports, shipped),
        "",
        *_wrong(reports[shipped]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _table(reports: Mapping[int, Mapping[str, Any]], shipped: int) -> list[str]:
    found, own = spreads(reports), spreads({shipped: reports[shipped]})
    head = ["| | shipped | least | mean | most | deviation |", "|---|---|---|---|---|---|"]
    rows = [
        f"| {name} | **{own[name]['mean']:.3f}** | {one['least']:.3f} | {one['mean']:.3f} | "
        f"{one['most']:.3f} | {one.get('deviation', float('nan')):.3f} |"
        for name, one in found.items()
    ]
    shares = ", ".join(f"{share:.3f}" for share in reports[shipped]["all"]["by_position"])
    looping = reports[shipped]["looping_answers"]
    return [
        *head,
        *rows,
        "",
        f"Share of cycles whose first, second, … draft was accepted: {shares}. {looping} of the "
        "answers repeat themselves.",
    ]


def _wrong(report: Mapping[str, Any]) -> list[str]:
    if "wrong_captures" not in report:
        return []
    rows = [
        f"| {name} | {one['layers']} | {one['accept_length']:.3f} |"
        for name, one in report["wrong_captures"].items()
    ]
    return [
        "What a wrong capture costs (the same draft, other layers handed over):",
        "",
        "| | layers | accept length |",
        "|---|---|---|",
        *rows,
    ]
