"""`sglang-spec bench` against real servers: whole ones, and ones with a planted fault."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.proxy import Proxy
from kit.servers import ServerPool, spawner
from sglang_spec.bench import cells, output, session, subject
from sglang_spec.bench.runfile import read
from sglang_spec.bench.runner import Plan
from sglang_spec.models import Pair
from sglang_spec.models.alter import with_capture
from sglang_spec.server import Launch, Server, Speculation

LOAD = ("--pair", "tiny", "--context", "64", "--concurrency", "1,3", "--requests", "3")
SHORT = ("--new-tokens", "16", "--rounds", "2")
NEW = 241  # tokens; whether three requests ran at a time is told of answers that take a while


def bench(folder: Path, *arguments: str, check: int | None = None) -> dict[str, Any]:
    command = [sys.executable, "-m", "sglang_spec", "bench", *LOAD, *SHORT, "--json"]
    done = subprocess.run(
        [*command, "--output", str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert check is None or done.returncode == check, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@pytest.fixture(scope="module")
def plain(servers: ServerPool, tiny: Pair) -> Server:
    return servers.server(Launch(tiny.target))


@pytest.fixture(scope="module")
def fast(servers: ServerPool, tiny: Pair) -> Server:
    return servers.server(Launch(tiny.target, Speculation(tiny.draft)))


@pytest.fixture
def lying(fast: Server) -> Iterator[Proxy]:
    """The speculating server behind a proxy that changes one token of each answer."""
    with Proxy(fast.url, position=5) as proxy:
        yield proxy


def test_running_servers_are_measured_and_a_changed_token_is_invalid(
    plain: Server, fast: Server, lying: Proxy, tmp_path: Path
) -> None:
    """One run for all that a whole side and a lying one show: the load generator takes seconds."""
    sides = {"none": plain.url, "static": fast.url, "lying": lying.url}
    urls = [word for name, url in sides.items() for word in ("--url", f"{name}={url}")]
    for folder in (tmp_path / str(attempt) for attempt in range(5)):
        found = bench(folder, *urls, "--concurrency", "3", "--new-tokens", str(NEW), check=1)
        assert found["partial"] is None and list(found["cells"]) == ["64x3"]
        cell = found["cells"]["64x3"]
        said = [why for name in ("none", "static") for why in cell[name]["invalid"]]
        if not any("ran at a time on average" in why for why in said):
            break  # else the host let the load generator wait
    assert cell["none"]["valid"] and cell["static"]["valid"] and not cell["lying"]["valid"]
    assert cell["static"]["accept_length"] == 4.0
    assert cell["static"]["position_acceptance"] == [1.0, 1.0, 1.0]
    assert cell["static"]["equality"]["equal"] == 6
    assert cell["static"]["speedup"]["low"] <= cell["static"]["speedup"]["ratio"]
    assert "unequal output: request 0, position 5" in cell["lying"]["invalid"][0]
    assert cell["lying"]["speedup"] is None
    run = read(folder / "run.jsonl")
    assert {entry["total_input_tokens"] for entry in run.measurements.values()} == {3 * 64}
    assert {entry["total_output_tokens"] for entry in run.measurements.values()} == {3 * NEW}
    assert {path.name for path in folder.iterdir() if path.is_file()} == {
        "run.jsonl", "figures.json", "summary.md", "curves.png", "curves.svg",
    }  # fmt: skip
    assert "`lying` is invalid" in (folder / "summary.md").read_text()


@pytest.mark.full  # two more starts of the load generator
def test_a_wrong_capture_is_invalid_not_slow(
    servers: ServerPool, plain: Server, tiny: Pair, tmp_path: Path
) -> None:
    config = json.loads((tiny.draft / "config.json").read_text())
    right = config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    wrong = with_capture(tiny.draft, tmp_path / "draft", [right[0] + 1, *right[1:]])
    server = servers.server(Launch(tiny.target, Speculation(wrong)))
    found = bench(
        tmp_path / "out", "--url", f"none={plain.url}", "--url", f"wrong={server.url}", check=1
    )
    for cell in found["cells"].values():
        (why,) = cell["wrong"]["invalid"]
        assert "accept length 1.0" in why and cell["wrong"]["equality"]["wrong"] == 0


@pytest.mark.full  # the load generator is started three times
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_is_partial_and_is_gone_on_with(
    signum: signal.Signals, plain: Server, fast: Server, tmp_path: Path
) -> None:
    urls = ("--url", f"none={plain.url}", "--url", f"static={fast.url}")
    command = [sys.executable, "-m", "sglang_spec", "bench", *LOAD, *SHORT, *urls]
    started = subprocess.Popen([*command, "--output", str(tmp_path)], stderr=subprocess.DEVNULL)
    raw = tmp_path / "run.jsonl"
    deadline = time.monotonic() + 200
    while not (raw.exists() and len(read(raw).measurements) >= 2):
        assert started.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(started.pid, signum)
    code = started.wait(60)
    assert code == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[signum]
    before = read(raw)
    assert before.partial and 2 <= len(before.measurements) < 8
    if signum != signal.SIGKILL:
        assert f"Partial: {before.partial}" in (tmp_path / "summary.md").read_text()
    found = bench(tmp_path, *urls, "--resume", check=0)
    after = read(raw)
    assert found["partial"] is None and after.partial is None and len(after.measurements) == 8
    assert after.measurements.items() >= before.measurements.items()
    digests = {entry["answers_sha256"] for entry in after.measurements.values()}
    assert len(digests) == 1, "every side, load and round answers the same three prompts"


@pytest.mark.full  # starts four servers
def test_servers_are_started_one_at_a_time(servers: ServerPool, tmp_path: Path) -> None:
    tested = subject.subject("tiny", None, None, None)
    loads = cells.grid([64], [1, 3], [], 3, 16)
    made = subject.settings(tested, loads, 2, (), "bfloat16")
    sides = tuple(subject.of_modes(["none", "static", "threshold"], made))
    plan = Plan(sides, loads, 2, 1, tested.corpus, tmp_path / "logs")
    settings = {"sides": [side.name for side in sides], "cells": [cell.key for cell in loads]}
    header = subject.header(tested, settings)
    run, code = session.measure(
        plan, header, tmp_path, False, "bench", spawn=spawner(servers.zygote)
    )
    assert (code, run.partial) == (0, None)
    found = output.figures(run)["cells"]
    assert found["64x1"]["threshold"]["accept_length"] == 4.0
    assert all(one["valid"] for cell in found.values() for one in cell.values())
    assert found["64x3"]["none"]["rounds"] == 4, "the baseline is measured again at the end"
