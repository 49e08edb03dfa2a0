"""`sglang-spec doctor threshold`: what is printed of the threshold's own account of itself."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner
from sglang.srt.spec_hardening.threshold.acceptance import Acceptance
from sglang.srt.spec_hardening.threshold.auto import AutoDecider
from sglang.srt.spec_hardening.threshold.cost import CYCLE, PHASES, CostTable, Line
from sglang.srt.spec_hardening.threshold.policy import Bounds, Threshold
from sglang_spec.doctor.command import doctor
from sglang_spec.doctor.threshold import PHASES as SHOWN

COUNTS = {"speculating": False, "switches": 1, "batches_on": 2, "batches_off": 30,
          "catch_ups": 4, "catch_ups_kv_only": 3, "ring_gb": 0.125, "graph_gb": 0.5}  # fmt: skip


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(doctor, ["threshold", *arguments])
    return done.exit_code, done.stdout, done.stderr


@contextmanager
def serving(*states: dict[str, Any]) -> Iterator[str]:
    """A port that answers `/server_info` as a server with these internal states does."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/server_info" else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"internal_states": states}).encode())

        log_message: Callable[..., None] = lambda *_: None

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def account(decider: Any) -> dict[str, Any]:
    """As the worker puts it together for `/server_info`."""
    return {"batch_threshold": {**COUNTS, "reason": decider.reason, **decider.details()}}


@pytest.fixture
def auto() -> AutoDecider:
    rows, milliseconds = (1, 8, 64), dict(zip(PHASES, range(1, 7), strict=True))
    seconds = {phase: tuple(1e-3 * ms * n**0.5 for n in rows) for phase, ms in milliseconds.items()}
    made = AutoDecider(Acceptance(3), None, CostTable(4, (Line(1000, rows, seconds),)))
    made.decide(8, 8000)
    return made


def test_auto_has_a_table(auto: AutoDecider) -> None:
    with serving(account(auto)) as url:
        code, out, _ = run(url)
    lines = out.splitlines()
    assert code == 0 and set(SHOWN) == set(PHASES)
    assert lines[0] == auto.reason and "tokens decode in" in lines[0]
    assert lines[1].startswith("1 switches, 2 batches with speculation, 30 without, 4 catching-ups")
    assert lines[4] == "the table is as measured at start"
    assert lines[5].startswith(f"1000 tokens of context: does not pay from {auto.crossing(1000)} ")
    assert lines[6].split() == ["requests", *SHOWN, "gain"]
    assert lines[8].split()[:3] == ["8", f"{8**0.5:.3f}", f"{2 * 8**0.5:.3f}"]
    assert [line.split()[-1] for line in lines[7:10]] == [
        f"{auto.gain(n, 1000):.2f}" for n in (1, 8, 64)
    ]


def test_a_table_that_was_refreshed_says_how_it_differs(auto: AutoDecider) -> None:
    assert auto.table is not None
    (line,) = auto.table.lines
    slower = line.scaled(lambda at, phase: 1.5 if phase in CYCLE and at else 1.0)
    auto.refresh(CostTable(4, (slower,)))
    for _ in range(7):
        auto.decide(8, 8000)
    with serving(account(auto)) as url:
        _, out, _ = run(url)
    assert out.splitlines()[4] == (
        "the table was refreshed 1 times, last 7 batches ago; times as long as at start: "
        "plain steps 1.00 to 1.00, cycles 1.00 to 1.50"
    )


def test_a_number_has_two_bounds() -> None:
    decider = Threshold(Bounds(64, 48, 32))
    decider.decide(70)
    with serving(account(decider)) as url:
        code, out, _ = run(url)
        assert json.loads(run(url, "--json")[1])[0]["off_from_requests"] == 64
    assert code == 0
    assert out.splitlines()[0] == decider.reason
    assert out.splitlines()[-1] == "off from 64 requests, on again at 48 and fewer"


def test_each_replica_has_its_own() -> None:
    few, many = Threshold(Bounds(8, 6, 1)), Threshold(Bounds(64, 48, 1))
    with serving(account(few), account(many)) as url:
        _, out, _ = run(url)
    assert [line for line in out.splitlines() if line.startswith("off from")] == [
        "off from 8 requests, on again at 6 and fewer",
        "off from 64 requests, on again at 48 and fewer",
    ]


def test_what_cannot_be_said() -> None:
    with serving({"kv_cost": {}}) as url:
        code, out, error = run(url)
    assert (code, out) == (1, "") and "--speculative-disable-batch-threshold" in error
    code, _, error = run("http://127.0.0.1:1")
    assert code == 1 and "/server_info: ConnectError" in error
    assert run()[0] == 2
