"""A snapshot as one HTML page that needs nothing but itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from .snapshot import Snapshot

# One colour a phase; wait, which nobody wants, is grey.
COLOURS = {
    "wait": "#b8bec6",
    "prepare": "#e0a458",
    "draft": "#5b8def",
    "verify": "#2f6f4f",
    "decode": "#2f6f4f",
    "sample": "#9b6fb5",
    "draft_extend": "#7fb7d8",
}
STATES = {"healthy": "#2f6f4f", "degraded": "#b3372c", "unproven": "#8a6d1d"}

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2329; margin: 2rem auto; max-width: 60rem;
       padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; } .dim { color: #68727d; } code, pre { font-size: 13px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid #e4e7ea; }
th { font-weight: 600; color: #68727d; } th:first-child, td:first-child { text-align: left; }
td.text { text-align: left; overflow-wrap: anywhere; }
pre { background: #f5f6f7; padding: .8rem; overflow-x: auto; border-radius: 4px; }
.bar { display: flex; width: 100%; height: 1.1rem; border-radius: 3px; overflow: hidden;
       background: #eef0f2; min-width: 24rem; }
.bar i { display: block; height: 100%; }
.key i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; }
.key span { margin-right: 1.2rem; }
.state { color: #fff; border-radius: 4px; padding: .1rem .6rem; }
"""


def render(snapshot: Snapshot) -> str:
    """The whole page; everything that a server said is escaped."""
    watched = snapshot.speculation
    body = [
        "<h1>Speculation of an SGLang server</h1>",
        f'<p class="dim">{escape(snapshot.url)}, {escape(snapshot.date)}</p>',
        *_state(snapshot),
        *_phases(watched.get("phases", {})),
        *_acceptance(watched.get("acceptance", {})),
        *_rank_parts(snapshot),
        *_contract(snapshot.contract),
        *_communication(snapshot.communication),
        "<h2>Launch</h2>",
        _table(("argument", "value"), snapshot.arguments.items()),
        *_provenance(snapshot),
        "<h2>All of it as data</h2>",
        f"<details><summary>JSON</summary><pre>{_json(asdict(snapshot))}</pre></details>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        "<title>Speculation report</title>"
        f"<style>{STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _state(snapshot: Snapshot) -> Iterable[str]:
    watched, test = snapshot.speculation, snapshot.self_test
    state = str(watched.get("state") or "not watched")
    colour = STATES.get(state, "#68727d")
    yield (
        f'<p style="margin-top:1rem"><span class="state" style="background:{colour}">'
        f"{escape(state)}</span> {escape(str(watched.get('reason', '')))}</p>"
    )
    if not watched:
        yield "<p>No rank watches its speculation: no draft, or --speculative-watch off.</p>"
    if test:
        parts = [f"self-test before ready: {test.get('state')}", str(test.get("reason") or "")]
        parts += [f"accept length {test['accept_length']:.2f}"] if test.get("accept_length") else []
        parts += [f"in {test['seconds']:.1f} s"] if test.get("seconds") else []
        parts.append(", ".join(map(str, test.get("modes", ()))))
        yield f"<p>{escape('; '.join(part for part in parts if part))}</p>"


def _phases(bands: Mapping[str, Any]) -> Iterable[str]:
    if not bands:
        return
    yield "<h2>Where the time of a cycle goes</h2>"
    names = list(dict.fromkeys(name for band in bands.values() for name in band["phases_ms"]))
    yield (
        '<p class="key">'
        + "".join(
            f'<span><i style="background:{COLOURS.get(name, "#888")}"></i> {escape(name)}</span>'
            for name in names
        )
        + "</p>"
    )
    rows = []
    for size, band in bands.items():
        cycle = band["cycle_ms"] or 1.0
        bar = "".join(
            f'<i style="width:{100 * ms / cycle:.2f}%;background:{COLOURS.get(name, "#888")}" '
            f'title="{escape(name)} {ms:.3f} ms"></i>'
            for name, ms in band["phases_ms"].items()
        )
        largest = max(band["phases_ms"].items(), key=lambda item: item[1], default=("", 0.0))
        rows.append(
            f"<tr><td>{escape(size)}</td><td>{band['cycles']}</td><td>{band['cycle_ms']:.2f}</td>"
            f"<td>{escape(largest[0])} {largest[1] / cycle:.1%}</td>"
            f'<td><div class="bar">{bar}</div></td></tr>'
        )
    yield (
        _head(("requests", "timed cycles", "ms a cycle", "longest", ""))
        + "".join(rows)
        + "</table>"
    )


def _acceptance(counts: Mapping[str, Any]) -> Iterable[str]:
    if not counts:
        return
    yield "<h2>Acceptance</h2>"
    length = counts.get("accept_length")
    cycles = counts.get("verify_cycles", {})
    by_width = ", ".join(f"{count} of {steps} draft steps" for steps, count in cycles.items())
    yield (
        f"<p>accept length {'none yet' if length is None else f'{length:.3f}'} "
        f"(bonus token included); verify cycles: {escape(by_width) or 'none'}; "
        f"plain steps: {counts.get('plain_cycles', 0)}</p>"
    )
    if places := counts.get("positions", ()):
        rows = []
        for place in places:
            rate = place["correct"] / place["proposed"] if place["proposed"] else 0.0
            bar = (
                f'<div class="bar"><i style="width:{100 * rate:.2f}%;background:#5b8def"></i></div>'
            )
            rows.append(
                f"<tr><td>{place['num_steps']}</td><td>{place['position']}</td>"
                f"<td>{place['proposed']}</td><td>{place['correct']}</td>"
                f"<td>{rate:.1%}</td><td>{bar}</td></tr>"
            )
        heads = ("draft steps", "position", "proposed", "accepted", "rate", "")
        yield _head(heads) + "".join(rows) + "</table>"
    on, off = counts.get("seconds_on", 0.0), counts.get("seconds_off", 0.0)
    yield f"<p>decoding with speculation {on:.1f} s, without {off:.1f} s</p>"
    if switches := counts.get("switches", ()):
        keys = ("from", "to", "reason", "count")
        yield _table(keys, ([each.get(key) for key in keys] for each in switches))


def _rank_parts(snapshot: Snapshot) -> Iterable[str]:
    titles = {"batch_threshold": "Batch threshold", "eagle3_capture": "Captured layers"}
    for number, rank in enumerate(snapshot.ranks):
        of_rank = f", scheduler {number}" if len(snapshot.ranks) > 1 else ""
        for key, title in titles.items():
            if part := rank.get(key):
                yield f"<h2>{title}{of_rank}</h2>"
                plain = {key: _flat(value) for key, value in part.items() if _is_flat(value)}
                yield _table(("", ""), plain.items())
                if nested := {k: v for k, v in part.items() if not _is_flat(v) and v}:
                    yield f"<pre>{_json(nested)}</pre>"


def _is_flat(value: Any) -> bool:
    inner = value if isinstance(value, list) else ()
    return not isinstance(value, dict) and not any(isinstance(v, (list, dict)) for v in inner)


def _flat(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _contract(told: Mapping[str, Any]) -> Iterable[str]:
    if not told:
        return
    yield "<h2>Contract of draft and target</h2>"
    if "accepted" not in told:
        verdict = f"not checked: {told.get('reason')}"
    elif told["accepted"]:
        verdict = f"accepted ({told.get('mode')})"
    else:
        verdict = f"refused, and served all the same ({told.get('mode')})"
    lists = ("problems", "warnings", "slots", "notes")
    lines = [("verdict", verdict), *((key, line) for key in lists for line in told.get(key, ()))]
    yield _table(("", ""), lines)


def _communication(told: Mapping[str, Any]) -> Iterable[str]:
    if not told.get("table") and not told.get("in_use"):
        return
    yield "<h2>Communication</h2>"
    if lines := told.get("table"):
        yield f"<pre>{escape(chr(10).join(map(str, lines)))}</pre>"
    if in_use := told.get("in_use"):
        yield _table(("in use", ""), in_use.items())


def _provenance(snapshot: Snapshot) -> Iterable[str]:
    told = snapshot.provenance
    yield "<h2>What runs</h2>"
    patches: Sequence[str] = told.get("patches", ())
    rows = {
        "sglang": snapshot.version or told.get("version"),
        "patch set": told.get("patch_set"),
        "wheel sha256": told.get("wheel_sha256"),
        "files that differ": ", ".join(told.get("changed", ())) or "none",
        f"{len(patches)} patches": ", ".join(patches),
    }
    yield _table(("", ""), rows.items())


def _head(names: Sequence[str]) -> str:
    return "<table><tr>" + "".join(f"<th>{escape(name)}</th>" for name in names) + "</tr>"


def _table(heads: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    body = "".join(
        "<tr>" + "".join(f'<td class="text">{escape(str(cell))}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    return (_head(heads) if any(heads) else "<table>") + body + "</table>"


def _json(value: Any) -> str:
    return escape(json.dumps(value, indent=1, default=str))
