"""The dashboard, the guide and the program name the same metrics."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.schemas import through_grafana

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


# What Grafana itself writes for a variable that asks Prometheus, and its model does not name.
UNNAMED = {".templating.list[1].definition"}


def lost(given: Any, kept: Any, path: str = "") -> Iterator[str]:
    """Paths of what `given` has and `kept` has not, or has otherwise."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            if name in kept:
                yield from lost(value, kept[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from lost(one, other, f"{path}[{number}]")
    elif given != kept:
        yield path


def test_grafanas_model_knows_every_field() -> None:
    assert set(lost(DASHBOARD, through_grafana(DASHBOARD))) == UNNAMED


@pytest.mark.parametrize(
    "path",
    ["options.reduceOptions", "targets.0", "fieldConfig.defaults", "fieldConfig.defaults.custom"],
)
def test_a_field_that_grafana_does_not_know_is_found(path: str) -> None:
    wrong = copy.deepcopy(DASHBOARD)
    kind = "stat" if path.startswith("options") else "timeseries"
    place = next(panel for panel in wrong["panels"] if panel["type"] == kind)
    for name in path.split("."):
        place = place[int(name) if name.isdigit() else name]
    place["colour"] = "red"
    (found,) = set(lost(wrong, through_grafana(wrong))) - UNNAMED
    assert found.endswith(".colour")


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
