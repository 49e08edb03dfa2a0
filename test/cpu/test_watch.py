"""The watch on real servers: phases, counters, switches, and an alarm that rises and clears."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from kit.faulty_server import FaultyServer
from kit.servers import ServerPool
from kit.watch_checks import (
    FLAGS,
    STEPS,
    ask,
    check_counts_are_the_requests,
    check_phases_fill_the_cycle,
    check_switches_and_time_off,
    scrape,
    watched,
)
from sglang_spec.cli import main
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation

WINDOW = 4  # seconds after a decode in which a health probe asks for none


@pytest.fixture(scope="module")
def server(
    servers: ServerPool, tiny: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultyServer]:
    """Every draft is accepted, while no fault is planted."""
    file = tmp_path_factory.mktemp("watch") / "fault"
    launch = Launch(
        tiny.target,
        Speculation(tiny.draft, STEPS, 1, STEPS + 1),
        arguments=(*FLAGS, "--speculative-verify-timeout", "60"),
        environment={"SGLANG_HEALTH_CHECK_TIMEOUT": str(WINDOW)},
    )
    with FaultyServer(servers, launch, file, "watch") as server:
        yield server


def test_phases_fill_the_cycle(server: FaultyServer) -> None:
    check_phases_fill_the_cycle(server.client, server.server.url, within=0.05)
    lines = [line for line in server.server.log.read_text().splitlines() if " % of " in line]
    assert lines and "Decode batch" in lines[-1] and "verify " in lines[-1]


def test_what_is_counted_is_what_the_requests_say(server: FaultyServer) -> None:
    check_counts_are_the_requests(server.client)


def test_switches_and_the_time_off_are_counted(server: FaultyServer) -> None:
    check_switches_and_time_off(server.client)


def test_report_and_top_of_a_running_server(server: FaultyServer, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    done = CliRunner().invoke(main, ["report", server.server.url, "--output", str(output)])
    assert done.exit_code == 0, done.output
    page = output.read_text()
    for part in (
        "healthy",
        "Batch threshold",
        "draft_extend",
        "speculative_num_steps",
        "patch set",
    ):
        assert part in page, part
    live = ["top", server.server.url, "--interval", "0.2", "--count", "1"]
    done = CliRunner().invoke(main, live)
    assert done.exit_code == 0, done.output
    assert "healthy" in done.output and "accept length" in done.output


def test_a_wrong_capture_on_a_live_server_is_an_alarm_that_clears(server: FaultyServer) -> None:
    client = server.client
    ask(client, 4, 60)
    assert watched(client)["state"] == "healthy"
    assert client.get("/health").text == ""
    server.plant("capture -")
    ask(client, 4, 150)  # 600 cycles: the window of 512 and a part more
    state = watched(client)
    assert state["state"] == "degraded", state
    assert "accept length 1." in state["reason"]
    reply = client.get("/health")
    assert (reply.status_code, reply.text) == (200, f"degraded: {state['reason']}")
    assert client.get("/ready").status_code == 200
    kept_out = client.get("/ready?speculation=healthy")  # as a router asks
    assert (kept_out.status_code, kept_out.text) == (503, reply.text)
    misspelt = client.get("/ready?speculation=health")
    assert misspelt.status_code == 503 and "/ready?speculation=healthy" in misspelt.text
    assert scrape(client)("spec_state", 'state="degraded"') == 1
    time.sleep(WINDOW + 0.5)
    assert client.get("/health").text == reply.text, "also of a probe that has to decode"
    server.plant("")
    for _ in range(3):
        ask(client, 4, 250)
    assert watched(client)["state"] == "healthy", watched(client)
    assert client.get("/health").text == ""
    assert client.get("/ready?speculation=healthy").status_code == 200
    assert scrape(client)("spec_state", 'state="healthy"') == 1
    said = [line for line in server.server.log.read_text().splitlines() if "Speculation is" in line]
    assert len(said) == 2 and "degraded: accept" in said[0] and said[1].endswith("healthy")


def test_rates_across_switches_are_those_of_the_width_that_was_used(
    servers: ServerPool, tiny: Pair, tmp_path: Path
) -> None:
    """One or two requests draft three steps, more draft none; whatever is drafted is accepted."""
    config = tmp_path / "adaptive.json"
    slots = {"1": {"candidate_steps": [STEPS]}, "3": {"candidate_steps": [0]}}
    config.write_text(json.dumps(slots))
    flags = ("--speculative-adaptive", "--speculative-adaptive-config", str(config))
    flags += ("--skip-speculative-self-test", "--decode-log-interval", "4")
    launch = Launch(tiny.target, Speculation(tiny.draft, STEPS, 1, STEPS + 1), arguments=flags)
    with servers.start(launch, "watch-adaptive") as started:
        client = Client(started.wait_ready().url)
        body = {
            "input_ids": [[0, 70 + row, 71] for row in range(3)],
            "sampling_params": [
                {"temperature": 0, "ignore_eos": True, "max_new_tokens": length}
                for length in (9, 12, 41)
            ],
        }
        client.generate([0, 70, 71], 9, ignore_eos=True)  # the health probe's verify is over then
        before = watched(client)["acceptance"]["verify_cycles"]
        answers = [answer["meta_info"] for answer in client.post("/generate", **body).json()]
        state = watched(client)
        log = started.log.read_text()
        client.close()
    for meta in answers:
        assert meta["spec_num_proposed_drafts"] == meta["spec_num_correct_drafts"]
    assert [meta["spec_accept_rate"] for meta in answers[1:]] == [1, 1]
    rates = {
        line.split("accept rate: ")[1].split(",")[0]
        for line in log.splitlines()
        if "accept rate" in line
    }
    assert rates <= {"0.00", "1.00"} and "1.00" in rates
    assert state["state"] == "unproven"
    assert {each["reason"] for each in state["acceptance"]["switches"]} == {"adaptive"}
    cycles = sum(state["acceptance"]["verify_cycles"].values()) - sum(before.values())
    assert cycles == sum(meta["spec_verify_ct"] for meta in answers)


@pytest.mark.full  # two ranks of their own
def test_ranks_that_accept_differently_are_an_alarm(
    servers: ServerPool, tiny: Pair, tmp_path: Path
) -> None:
    launch = Launch(
        tiny.target,
        Speculation(tiny.draft, STEPS, 1, STEPS + 1),
        arguments=("--tp-size", "2"),
    )
    with FaultyServer(servers, launch, tmp_path / "fault", "watch-ranks") as server:
        ask(server.client, 1, 100)
        assert watched(server.client)["state"] == "healthy"
        server.plant("accept 1")
        # Ranks that part may end in a hang, where only the front end still answers.
        worker = threading.Thread(target=_ask_in_vain, args=(server.server.url,), daemon=True)
        worker.start()
        deadline, said = time.monotonic() + 60, ""
        while "verify batches" not in said and time.monotonic() < deadline:
            time.sleep(0.1)
            said = httpx.get(f"{server.server.url}/health", timeout=30).text
        assert "degraded: in verify batches" in said and "rank TP1" in said, said


def _ask_in_vain(url: str) -> None:
    with contextlib.suppress(httpx.HTTPError):
        body = {"input_ids": [0, 70, 71], "sampling_params": {"max_new_tokens": 400}}
        httpx.post(f"{url}/generate", json=body, timeout=60)


@pytest.mark.full  # a server of its own
def test_nothing_is_watched_where_the_flag_says_so(servers: ServerPool, tiny: Pair) -> None:
    launch = Launch(tiny.target, Speculation(tiny.draft), arguments=("--speculative-watch", "off"))
    client = servers.client(launch)
    ask(client, 1, 20)
    assert "speculation" not in client.get("/server_info").json()["internal_states"][0]
    assert " % of " not in servers.server(launch).log.read_text()


@pytest.mark.full  # ten minutes
def test_ten_minutes_of_mixed_load_raise_no_alarm(servers: ServerPool, embedded: Pair) -> None:
    """A trained draft: text, random tokens, hot sampling, long prompts, one to eight requests."""
    launch = Launch(embedded.target, Speculation(embedded.draft, STEPS, 1, STEPS + 1))
    client, dice = servers.client(launch), random.Random(7)
    questions = ["Write a story about a lighthouse.", "Count to forty.", "List ten colours."]
    ends, asked = time.monotonic() + 600, 0
    while time.monotonic() < ends:
        rows = dice.choice((1, 2, 4, 8))
        temperature = dice.choice((0, 0, 0.7, 1.3))
        if dice.random() < 0.5:
            for question in questions[: max(1, rows // 2)]:
                client.chat(question, max_tokens=dice.randrange(8, 96))
        else:
            length = dice.choice((4, 40, 400))
            prompts = [[1, *dice.choices(range(1000, 40_000), k=length)] for _ in range(rows)]
            tokens = dice.randrange(8, 160)
            client.generate_batch(prompts, tokens, temperature=temperature, ignore_eos=True)
        asked += rows
    state = watched(client)
    print(f"{asked} requests, accept length {state['acceptance']['accept_length']}")
    assert state["state"] == "healthy"
    assert "Speculation is" not in servers.server(launch).log.read_text()
