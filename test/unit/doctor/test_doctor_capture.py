"""`sglang-spec doctor capture` without SGLang; with it: `test/cpu/test_aux_capture.py`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kit.checkpoints import Config, copy
from kit.faults import IDS
from sglang_spec.doctor.command import doctor
from sglang_spec.models import deepseek_pair, tiny_pair

SLOT = {"slot": 0, "takes": "output of layer 1", "loop_index": 2}
CAPTURE = {
    "slots": [SLOT],
    "layer_ids": None,
    "convention": "not known",
    "fc_width": 256,
    "fingerprint": "none",
}
Serve = Callable[[list[Any]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts an HTTP server whose /server_info tells of these replicas; gives its URL."""
    started: list[ThreadingHTTPServer] = []

    def start(captures: list[Any]) -> str:
        states = [{"eagle3_capture": capture} for capture in captures]
        body = json.dumps({"internal_states": states}).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = self.path == "/server_info"
                self.send_response(200 if known else 404)
                self.end_headers()
                self.wfile.write(body if known else b"")

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def run(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(doctor, ["capture", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_a_pair_by_its_contract() -> None:
    pair = deepseek_pair("kimi", "mla")
    code, said, _ = run("--target", pair.target, "--draft", pair.draft)
    assert code == 0
    assert "contract: fc takes 3 states, 768 wide" in said
    assert "slot 2 takes output of layer 4 (loop index 5)" in said
    assert "ids [2, 3, 5]: ids are layers if the first id is 1, else loop indices" in said


def test_a_pair_without_a_list(tmp_path: Path) -> None:
    tiny = tiny_pair()
    draft = copy(tiny.draft, tmp_path / "draft", lambda config: config.pop("eagle_config"))
    code, said, _ = run("--target", tiny.target, "--draft", draft, "--json")
    assert code == 0
    found = json.loads(said)["contract"]
    assert found["layer_ids"] is None
    assert [slot["loop_index"] for slot in found["slots"]] == [2, 3, 4]
    assert "ids none, the default layers" in run("--target", tiny.target, "--draft", draft)[1]


def test_a_target_that_leaves_its_width_to_its_class(tmp_path: Path) -> None:
    pair = tiny_pair()
    target = copy(pair.target, tmp_path / "target", lambda config: config.pop("hidden_size"))
    code, out, err = run("--target", target, "--draft", pair.draft, "--json")
    assert code == 0, err
    assert json.loads(out)["contract"]["fc_width"] == 768


def test_a_refused_pair_is_a_finding(tmp_path: Path) -> None:
    def edit(config: Config) -> None:
        config["eagle_config"][IDS] = [5, 3, 1]

    tiny = tiny_pair()
    draft = copy(tiny.draft, tmp_path / "draft", edit)
    code, said, error = run("--target", tiny.target, "--draft", draft)
    assert (code, said) == (1, "") and "[ids-order]" in error


def test_a_server_that_captures_nothing(serve: Serve) -> None:
    code, _, error = run(serve([None]))
    assert code == 1 and "without --speculative-algorithm EAGLE3" in error


def test_replicas_that_differ(serve: Serve) -> None:
    other = CAPTURE | {"slots": [SLOT | {"loop_index": 3}]}
    code, _, error = run(serve([CAPTURE, other]))
    assert code == 1 and "its replicas capture different layers" in error


def test_no_server_there(serve: Serve) -> None:
    for url in ("http://127.0.0.1:9", f"{serve([CAPTURE])}/elsewhere", "no url"):
        code, _, error = run(url)
        assert code == 1 and error.startswith(f"error: {url}")


def test_a_server_with_another_draft_than_this(serve: Serve) -> None:
    tiny = tiny_pair()
    told = {"slots": [SLOT | {"takes": "output of layer 2", "loop_index": 3}]}
    pair = ("--target", tiny.target, "--draft", tiny.draft)
    code, _, error = run(serve([CAPTURE | told]), *pair)
    assert code == 1
    assert "slot 0 of the server takes output of layer 2, by the contract of this pair" in error
    code, _, error = run(serve([CAPTURE]), *pair)
    assert code == 1 and "fc is 256 wide in the server, 768 in this pair" in error


@pytest.mark.parametrize("arguments", [(), ("--target", "t"), ("--draft", "d"), ("--port", "1")])
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert run(*arguments)[0] == 2
