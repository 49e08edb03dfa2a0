"""The order of a visit, and that a server which is lost ends only itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sglang_spec import process
from sglang_spec.bench import visit
from sglang_spec.bench.load import LoadError
from sglang_spec.bench.mode import Settings
from sglang_spec.bench.record import Record, read
from sglang_spec.bench.shape import Shape
from sglang_spec.bench.visit import OutOfTime, Plan
from sglang_spec.models import Pair
from sglang_spec.server import ServerError

# What `visit` asks of a server; one whose command line has the word in argv[1] ends at once.
PROGRAM = """
import http.server, json, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/end":
            os._exit(1)
        self.send_response(200)
        self.end_headers()
        state = {"memory_usage": {"token_capacity": 99, "graph": {"verify": 0.5}}}
        self.wfile.write(json.dumps({"internal_states": [state]}).encode())
    def log_message(self, *_):
        pass
words = sys.argv[2:]
if sys.argv[1] in words:
    sys.exit("it has no memory")
port = int(words[words.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
SETTINGS = Settings(Shape("own", lambda: Pair(Path("t"), Path("d")), (0, 9)), None)


def spawn(ends: str = "never") -> Any:
    def start(command: Sequence[str], log: Path, env: dict[str, str]) -> process.Child:
        return process.spawn([sys.executable, "-c", PROGRAM, ends, *command], log, env)

    return start


@dataclass
class Scene:
    """Notes what is done to it; its measurement number `breaks`, counted from 1, fails.

    With `ends` the server ends there.
    """

    key: str
    context: int
    breaks: int = 99
    ends: bool = False
    done: list[str] = field(default_factory=list)

    def warm(self, url: str) -> None:
        self.done.append("warm")

    def run(self, url: str) -> dict[str, Any]:
        self.done.append("run")
        if self.done.count("run") == self.breaks:
            if self.ends:
                with suppress(httpx.HTTPError):
                    httpx.get(f"{url}/end")
            raise LoadError("the connection broke")
        return {"tok_s": 1.0}


def plan(tmp_path: Path, *scenes: Scene, modes: str = "none static", **changed: Any) -> Plan:
    names = tuple(modes.split())
    made = {"rounds": 3, "together": len(names), "seconds": 0.0, "logs": tmp_path} | changed
    return Plan(names, scenes, **made)


def begun(tmp_path: Path) -> Record:
    told = {"shape": "own", "backend": None, "num_steps": 3, "threshold": 8}
    return Record(tmp_path / "r.json", told)


def measured(visits: list[dict[str, Any]], scene: str) -> dict[str, int]:
    return {mode: len(found) for mode, found in visits[0]["samples"][scene].items()}


def test_a_round_of_everything_comes_before_the_second_of_anything(tmp_path: Path) -> None:
    scenes = (Scene("a", 64), Scene("b", 64), Scene("long", 512))
    profiled = (Scene("p", 64),)
    lines = plan(tmp_path, *scenes, profiles=profiled, profiled=("static",)).describe()
    assert lines == [
        "group 1: servers none, static",
        "warm a, b",
        *("round 1 of a", "round 1 of b", "round 2 of a", "round 2 of b"),
        "profile p on static",
        *("round 3 of a", "round 3 of b"),
        "warm long",
        *("round 1 of long", "round 2 of long", "round 3 of long"),
    ]
    once = plan(tmp_path, Scene("a", 64), rounds=1, profiles=profiled, profiled=("static",))
    assert once.describe()[-2:] == ["round 1 of a", "profile p on static"]
    assert plan(tmp_path, profiles=profiled, profiled=("none",)).describe()[1:] == [
        "profile p on none"
    ]


def test_a_server_that_does_not_start_is_left_out(tmp_path: Path) -> None:
    record = begun(tmp_path)
    scene = Scene("a", 64)
    with pytest.raises(ServerError, match=r"static: (.|\n)*it has no memory"):
        visit.run(plan(tmp_path, scene), SETTINGS, record, print, spawn("--speculative-algorithm"))
    visits = read(tmp_path / "r.json")
    assert measured(visits, "a") == {"none": 3}
    assert "it has no memory" in visits[0]["failed"]["static"]
    # Not alone on its device: what its graphs take is not known.
    assert "state_gb" not in visits[0]["servers"]["none"]


def test_a_server_that_breaks_off_is_stopped_and_the_others_go_on(tmp_path: Path) -> None:
    record = begun(tmp_path)
    scenes = (Scene("a", 64, breaks=3, ends=True), Scene("b", 64))
    with pytest.raises(ServerError, match="static: LoadError: the connection broke"):
        visit.run(plan(tmp_path, *scenes), SETTINGS, record, print, spawn())
    visits = read(tmp_path / "r.json")
    # In the second round the static server comes first.
    assert measured(visits, "a") == {"none": 3, "static": 1}
    assert measured(visits, "b") == {"none": 3, "static": 1}
    assert json.loads((tmp_path / "r.json").read_text())["visits"] == visits


def test_a_load_that_fails_on_a_healthy_server_is_only_noted(tmp_path: Path) -> None:
    record = begun(tmp_path)
    with pytest.raises(ServerError, match="a, round 2 on static: LoadError"):
        visit.run(
            plan(tmp_path, Scene("a", 64, breaks=3)), SETTINGS, record, print, spawn()
        )  # fmt: skip
    assert measured(read(tmp_path / "r.json"), "a") == {"none": 3, "static": 2}


def test_servers_that_measure_themselves_start_first_and_alone(tmp_path: Path) -> None:
    said: list[str] = []
    visit.run(
        plan(tmp_path, Scene("a", 64), modes="none auto static threshold"),
        SETTINGS, begun(tmp_path), said.append, spawn(),
    )  # fmt: skip
    assert [line.split(" after")[0] for line in said[:6]] == [
        "starting auto …",
        "auto is ready",
        "starting none, static, threshold …",
        "none is ready",
        "static is ready",
        "threshold is ready",
    ]


def test_time_that_is_over_keeps_what_was_measured(tmp_path: Path) -> None:
    record = begun(tmp_path)
    with pytest.raises(OutOfTime):
        visit.run(
            plan(tmp_path, Scene("a", 64), modes="none", seconds=1e-9), SETTINGS, record, print,
            spawn(),
        )  # fmt: skip


def test_graphs_are_told_of_a_server_alone(tmp_path: Path) -> None:
    record = begun(tmp_path)
    visit.run(plan(tmp_path, Scene("a", 64), together=1), SETTINGS, record, print, spawn())
    assert record.visit["servers"]["static"]["state_gb"] == 0.5
    assert record.visit["failed"] == {}
