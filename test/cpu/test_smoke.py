"""`sglang-spec smoke` against real servers: a whole one, and ones with a planted fault."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.proxy import Proxy
from kit.servers import ServerPool
from sglang_spec.models import Pair
from sglang_spec.models.alter import with_capture
from sglang_spec.server import Launch, Server, Speculation

SHORT = (
    "--max-new-tokens",
    "24",
    "--long-tokens",
    "300",
    "--timeout",
    "900",
    "--prompt",
    "Name two colours.",
    "--prompt",
    "Count to ten.",
)
FEW = ("--only", "acceptance", "--only", "equality")


def _smoke(url: str, *arguments: str) -> tuple[int, dict[str, Any], dict[str, dict[str, Any]]]:
    command = [sys.executable, "-m", "sglang_spec", "smoke", url, "--json", *SHORT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    return done.returncode, report, {check["name"]: check for check in report["checks"]}


@pytest.fixture(scope="module")
def whole(servers: ServerPool, embedded: Pair) -> Server:
    return servers.server(Launch(embedded.target, Speculation(embedded.draft)))


def test_a_whole_server_passes(whole: Server) -> None:
    code, report, checks = _smoke(whole.url)
    assert (code, report["passed"]) == (0, True), report
    assert {check["verdict"] for check in checks.values()} == {"ok"}, report
    answers = checks["chat"]["figures"]["answers"]
    assert "4" in answers["What is 2+2? Answer briefly."]
    assert checks["acceptance"]["figures"]["accept_length"] > 1.2


def test_a_wrong_capture_is_a_finding_of_acceptance(
    servers: ServerPool, tiny: Pair, tmp_path: Path
) -> None:
    config = json.loads((tiny.draft / "config.json").read_text())
    right = config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    wrong = with_capture(tiny.draft, tmp_path / "draft", [right[0] + 1, *right[1:]])
    server = servers.server(Launch(tiny.target, Speculation(wrong)))
    code, report, checks = _smoke(server.url, *FEW, "--min-accept-length", "3.5")
    assert (code, report["passed"]) == (1, False)
    assert checks["acceptance"]["verdict"] == "finding", report
    assert "accept length" in checks["acceptance"]["detail"]
    assert "contract" in checks["acceptance"]["remedy"]
    assert checks["equality"]["verdict"] == "ok", "the output of a wrong capture stays right"


@pytest.fixture
def lying(whole: Server) -> Iterator[Proxy]:
    """The whole server behind a proxy that changes one token of each answer."""
    with Proxy(whole.url, position=5) as proxy:
        yield proxy


def test_an_unequal_token_is_named_without_a_baseline(lying: Proxy) -> None:
    code, report, checks = _smoke(lying.url, "--only", "equality")
    assert code == 1, report
    assert "prompt 0" in checks["equality"]["detail"]
    assert "position 5" in checks["equality"]["detail"]


def test_an_unequal_token_is_named_against_a_baseline(lying: Proxy, whole: Server) -> None:
    code, report, checks = _smoke(lying.url, "--only", "equality", "--baseline", whole.url)
    assert code == 1, report
    first = checks["equality"]["figures"]["unequal"][0]
    assert (first["prompt"], first["position"]) == (0, 5)
    assert first["got"] != first["wanted"]


def test_a_verify_that_hangs_stops_the_rest_and_is_named(servers: ServerPool, tiny: Pair) -> None:
    faulty = Launch(
        tiny.target,
        Speculation(tiny.draft),
        arguments=("--skip-server-warmup", "--speculative-verify-timeout", "2"),
        environment={
            "SGLANG_TEST_MODE": "1",
            "SGLANG_SPEC_FAULT": "serving_verify:hang",
            "SGLANG_HEALTH_CHECK_TIMEOUT": "600",  # so that no probe asks for a verify before
        },
    )
    with servers.start(faulty, "smoke-hang") as server:
        server.wait_ready()
        code, report, checks = _smoke(server.url, "--timeout", "12")
    assert code == 1, report
    assert checks["health"]["verdict"] == "ok"
    assert "no verify has returned" in checks["chat"]["detail"]
    assert checks["acceptance"]["verdict"] == "not_run"


def test_no_server_is_a_finding() -> None:
    code, _, checks = _smoke("http://127.0.0.1:1")
    assert code == 1
    assert "is a server listening" in checks["health"]["remedy"]
    assert checks["chat"]["verdict"] == "not_run"


def test_a_server_without_speculation_says_so(servers: ServerPool, tiny: Pair) -> None:
    server = servers.server(Launch(tiny.target))
    code, _, checks = _smoke(server.url, "--only", "speculation")
    assert (code, checks["speculation"]["verdict"]) == (1, "finding")
    _, _, checks = _smoke(
        server.url, "--no-speculation", "--only", "speculation", "--only", "equality"
    )
    assert checks["speculation"]["verdict"] == "skipped"
    assert checks["equality"]["verdict"] == "ok"


def test_a_wrong_url_is_wrong_usage() -> None:
    command = [sys.executable, "-m", "sglang_spec", "smoke", "localhost:30000"]
    assert subprocess.run(command, capture_output=True, timeout=600).returncode == 2
