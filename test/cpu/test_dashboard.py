"""Every query of the dashboard and of the guide, asked of a Prometheus that scrapes a server."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from kit import panels
from kit.servers import ServerPool
from kit.watch_checks import FLAGS, OFF_AT, STEPS
from sglang_spec import process
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "deploy/grafana/speculation.json").read_text())
RECIPES = re.findall(
    r"^\| ([^|]+) \| `([^`]*sglang:[^`]+)` \|$", (ROOT / "docs/metrics.md").read_text(), re.M
)
PROMETHEUS = os.environ.get("PROMETHEUS") or shutil.which("prometheus")
pytestmark = [
    pytest.mark.full,  # a server and half a minute of scraping
    pytest.mark.skipif(not PROMETHEUS, reason="needs the program prometheus (Debian's package)"),
]


Ask = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def prometheus(
    servers: ServerPool, tiny: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """URL of one that knows a server which was at one request, at many and at one again."""
    folder = tmp_path_factory.mktemp("prometheus")
    launch = Launch(tiny.target, Speculation(tiny.draft, STEPS, 1, STEPS + 1), arguments=FLAGS)
    client, server = servers.client(launch), servers.server(launch)
    port = process.free_port()
    config = folder / "prometheus.yml"
    target = {"static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}]}
    colon = {
        "source_labels": ["__name__"],
        "regex": "sglang_(.*)",
        "target_label": "__name__",
        "replacement": "sglang:$1",
    }
    jobs = [
        {"job_name": "plain", **target},  # an underscore for each colon
        {"job_name": "relabelled", **target, "metric_relabel_configs": [colon]},
    ]
    config.write_text(json.dumps({"global": {"scrape_interval": "2s"}, "scrape_configs": jobs}))
    command = [
        *(str(PROMETHEUS), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"),
        *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
    ]
    child = process.spawn(command, folder / "log", dict(os.environ))
    try:
        _decode(client, seconds=24)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stop(child)


@pytest.fixture
def ask(prometheus: str) -> Ask:
    return lambda query: _query(prometheus, query)


def _decode(client: Client, seconds: float) -> None:
    ends = time.monotonic() + seconds
    rows = 1
    while time.monotonic() < ends:
        prompts = [[0, 70 + row, 71] for row in range(rows)]
        client.generate_batch(prompts, 40, ignore_eos=True)
        rows = OFF_AT if rows == 1 else 1
    time.sleep(2)


def _query(url: str, query: str, seconds: float = 0.0) -> list[dict[str, Any]]:
    """Of now, or of the last `seconds`, twice in each of them."""
    given: dict[str, Any] = {"query": query}
    kind = "query"
    if seconds:
        now = time.time()
        given |= {"start": now - seconds, "end": now, "step": 0.5}
        kind = "query_range"
    window = "8s" if seconds else "30s"
    given["query"] = query.replace("$__rate_interval", window).replace("[5m]", f"[{window}]")
    body = httpx.get(f"{url}/api/v1/{kind}", params=given, timeout=30).json()
    assert body["status"] == "success", body
    found: list[dict[str, Any]] = body["data"]["result"]
    return found


TARGETS = [
    pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]


@pytest.mark.parametrize("job", ["plain", "relabelled"])
@pytest.mark.parametrize("query", TARGETS)
def test_a_panel_has_data(ask: Ask, query: str, job: str) -> None:
    asked = query.replace('model_name=~"$model"', f'job="{job}"')
    assert asked != query
    found = ask(asked)
    assert found
    for sample in found:
        assert math.isfinite(float(sample["value"][1])), sample


def test_the_panels_are_drawn_from_what_was_scraped(prometheus: str, tmp_path: Path) -> None:
    """Set DASHBOARD_PICTURE to keep the picture (docs/dashboard.png is one)."""

    def ask(query: str) -> list[dict[str, Any]]:
        return _query(prometheus, query.replace('model_name=~"$model"', 'job="relabelled"'), 40)

    picture = Path(os.environ.get("DASHBOARD_PICTURE") or tmp_path / "dashboard.png")
    found = panels.draw(DASHBOARD, ask, picture)
    assert all(found.values()), found
    assert found["Accept rate by position"] == STEPS and found["Phases of a cycle"] >= 6
    assert picture.stat().st_size > 20_000


@pytest.mark.parametrize(("figure", "query"), RECIPES, ids=[figure for figure, _ in RECIPES])
def test_a_recipe_gives_its_figure(ask: Ask, figure: str, query: str) -> None:
    found = [float(sample["value"][1]) for sample in ask(query)]
    if figure == "an alert":
        assert found == [], "the server is well"
        return
    assert found and all(math.isfinite(value) and value >= 0 for value in found)
    # On this pair every draft is accepted.
    if figure.startswith("accept length"):
        assert found == [pytest.approx(STEPS + 1)]
    if figure.startswith(("accept rate", "of those that were reached")):
        assert all(value == pytest.approx(1) for value in found)
    if figure.startswith("share"):
        assert 0 < sum(found) <= 1 + 1e-9


def test_there_are_recipes() -> None:
    assert len(RECIPES) == 11
