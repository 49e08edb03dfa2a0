"""The dashboard, the guide and the program name the same metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD = json.loads((ROOT / "deploy/grafana/speculation.json").read_text())
PROGRAM = (ROOT / "python/sglang/srt/spec_hardening/watch/metrics.py").read_text()
GUIDE = (ROOT / "docs/metrics.md").read_text()
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]


def named(text: str) -> set[str]:
    """Metrics in a text, the parts of a histogram as one."""
    found = set(re.findall(r"sglang(?::|\[:_\])(spec_\w+)", text))
    return {re.sub(r"_seconds_(sum|count|bucket)$", "_seconds", name) for name in found}


def of_program() -> set[str]:
    return {
        *re.findall(r'counter\(\s*"(spec_\w+)"', PROGRAM),
        *re.findall(r'"sglang:(spec_\w+)"', PROGRAM),
    }


def test_metrics_are_found_in_the_program() -> None:
    assert len(of_program()) == 8


def test_the_guide_has_every_metric_and_no_other() -> None:
    upstreams = {"spec_verify_calls_total"}
    assert named(GUIDE) - upstreams == of_program()


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_asks_for_metrics_that_there_are(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        assert named(target["expr"]) and named(target["expr"]) <= of_program()
        assert target["datasource"] == panel["datasource"]
        labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert all(label in target["expr"] for label in labels)


def test_every_metric_is_on_a_panel() -> None:
    asked = {name for panel in PANELS for t in panel["targets"] for name in named(t["expr"])}
    assert asked == of_program()


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (place["x"] + dx, place["y"] + dy)
            for dx in range(place["w"])
            for dy in range(place["h"])
        }
        assert not cells & taken and all(x < 24 for x, _ in cells)
        taken |= cells
