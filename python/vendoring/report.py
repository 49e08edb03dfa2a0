"""`status`: pin, patches, sizes, and the state of the tree."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any

from .interpreter import any_wheel, running_tag
from .layout import Layout
from .mail import unsent_because
from .mail_record import read_record as read_trials
from .mutation_record import is_stale
from .mutation_record import read_record as read_mutants
from .patch_faults import LINES_EACH, LINES_MEDIAN
from .pin import read_pin
from .series import Patch, read_series
from .stamp import wanted
from .state import Condition, TreeState, inspect, repo_of
from .table import upstream_status


def status(layout: Layout) -> dict[str, Any]:
    """Everything `status` prints, as plain data."""
    pin = read_pin(layout.pin)
    patches = read_series(layout)
    tag = running_tag()
    state = inspect(layout, wanted(pin, any_wheel(pin), patches))
    return {
        "upstream": {"name": pin.name, "version": pin.version, "pinned": list(pin.tags)},
        "version": pin.local_version,
        "interpreter": tag,
        "interpreter_pinned": tag in pin.tags,
        "tree": _tree(state),
        "patches": [_patch(layout, patch, state) for patch in patches],
        "added": sum(patch.added for patch in patches),
        "removed": sum(patch.removed for patch in patches),
        "sizes": _sizes(patches),
        "mutants": _mutants(layout, patches),
        "mails": _mails(layout, patches),
    }


def _sizes(patches: tuple[Patch, ...]) -> dict[str, Any]:
    """Added lines against what the gate allows."""
    largest = max(patches, key=lambda patch: patch.added, default=None)
    return {
        "median": median([patch.added for patch in patches] or [0]),
        "median_allowed": LINES_MEDIAN,
        "largest": largest.added if largest else 0,
        "largest_allowed": LINES_EACH,
        "largest_slug": largest.slug if largest else "",
    }


def _mutants(layout: Layout, patches: tuple[Patch, ...]) -> dict[str, int]:
    """How many patches have which verdict in the kept table of mutants."""
    rows = {row.slug: row for row in read_mutants(layout.patches)}
    counts: Counter[str] = Counter()
    for patch in patches:
        row = rows.get(patch.slug)
        stale = row is not None and is_stale(row, patch, patches)
        counts["not run" if row is None else "stale" if stale else row.verdict] += 1
    return dict(counts)


def _mails(layout: Layout, patches: tuple[Patch, ...]) -> dict[str, int]:
    """The same for the table of mails. What is stale there only making the mails anew can tell."""
    rows = {row.slug: row for row in read_trials(layout.patches)}
    counts: Counter[str] = Counter()
    for patch in patches:
        row = rows.get(patch.slug)
        counts[
            "not sent" if unsent_because(patch.header) else row.verdict if row else "not run"
        ] += 1
    return dict(counts)


def _tree(state: TreeState) -> dict[str, Any]:
    return {
        "condition": state.condition.value,
        "made_for": state.identity.tag if state.identity else "",
        "patch_set": state.identity.patch_set if state.identity else "",
        "edits": list(state.edits),
        "unexported": list(state.unexported),
        "operation": state.operation,
    }


def _patch(layout: Layout, patch: Patch, state: TreeState) -> dict[str, Any]:
    return {
        "slug": patch.slug,
        "subject": patch.header.subject,
        "category": patch.header.category,
        "upstream": upstream_status(patch),
        "added": patch.added,
        "removed": patch.removed,
        "files": list(patch.paths),
        "sha256": patch.sha256,
        "state": _state(layout, patch, state),
    }


def _state(layout: Layout, patch: Patch, state: TreeState) -> str:
    """`applied`, `modified` (a file it changes has edits) or `missing`."""
    if state.condition in (Condition.MISSING, Condition.HALF_MADE, Condition.UNKNOWN):
        return "missing"
    if set(patch.paths) & set(state.edits):
        return "modified"
    if state.condition is Condition.STALE or state.unexported:
        subjects = {commit.subject for commit in repo_of(layout).commits()}
        return "applied" if patch.header.subject in subjects else "missing"
    return "applied"


def status_text(data: dict[str, Any]) -> str:
    """The same for people."""
    upstream, tree = data["upstream"], data["tree"]
    pinned = "" if data["interpreter_pinned"] else " (no wheel pinned for it)"
    lines = [
        f"{upstream['name']} {data['version']}, pinned for {', '.join(upstream['pinned'])}",
        f"interpreter {data['interpreter']}{pinned}",
        f"tree: {tree['condition']}"
        + (f", made for {tree['made_for']}" if tree["made_for"] else ""),
    ]
    lines += [f"  edited: {path}" for path in tree["edits"]]
    lines += [f"  not exported: {subject}" for subject in tree["unexported"]]
    if tree["operation"]:
        lines.append(f"  unfinished: {tree['operation']}")
    lines.append(f"{len(data['patches'])} patches, +{data['added']} -{data['removed']}")
    sizes = data["sizes"]
    lines.append(
        f"added lines: median {sizes['median']:g} (at most {sizes['median_allowed']}), "
        f"largest {sizes['largest']} (at most {sizes['largest_allowed']}) {sizes['largest_slug']}"
    )
    for name in ("mutants", "mails"):
        told = ", ".join(f"{count} {verdict}" for verdict, count in data[name].items())
        lines.append(f"{name}: {told or 'none'}")
    width = max((len(patch["slug"]) for patch in data["patches"]), default=0)
    for patch in data["patches"]:
        size = f"+{patch['added']} -{patch['removed']}"
        lines.append(
            f"  {patch['slug']:<{width}}  {patch['category']:<15} {size:>8}  {patch['state']}"
        )
        lines += [f"  {'':<{width}}  {path}" for path in patch["files"]]
    return "\n".join(lines)
