"""The page and the live table: right figures, nothing that is nobody's business."""

from __future__ import annotations

import copy
from html.parser import HTMLParser
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from sglang_spec.cli import main
from sglang_spec.hardening.watch.counts import Counts, Step
from sglang_spec.hardening.watch.phases import Cycle, Phases
from sglang_spec.watch.page import render
from sglang_spec.watch.rates import between
from sglang_spec.watch.snapshot import Snapshot, bare, of

SECRETS = ("sk-key", "hunter2", "Tell me about", "admin-key", "/etc/cert.pem")


def info(counts: Counts, phases: Phases, state: str = "healthy", reason: str = "") -> Any:
    """An answer of /server_info, with what must not be in a report."""
    return {
        "version": "0.5.23+spec.1",
        "model_path": "models/target",
        "speculative_num_steps": 3,
        "speculative_draft_model_path": "models/<draft>",
        "tp_size": 2,
        "api_key": "sk-key",
        "admin_api_key": "admin-key",
        "ssl_keyfile_password": "hunter2",
        "ssl_certfile": "/etc/cert.pem",
        "launch_command": "sglang serve --api-key sk-key",
        "chat_template": "Tell me about {{ x }}",
        "spec_hardening": {
            "provenance": {"version": "0.5.23", "patch_set": "07d2dc", "patches": ["a", "b"]},
            "contract": {
                "mode": "report",
                "accepted": False,
                "slots": ["slot 0 takes output of layer 1 (loop index 2)"],
                "problems": ["[ids-order] config.json: ids = <3, 1>: sort them"],
                "warnings": [],
                "notes": [],
            },
            "communication": {"table": ["verify, 1 request: NCCL <ring>"], "hostname": "hunter2"},
        },
        "speculative_self_test": {
            "state": "proven",
            "accept_length": 2.5,
            "seconds": 3.2,
            "modes": ["greedy"],
        },
        "communication_in_use": {"ranks": 2},
        "internal_states": [
            {
                "last_prompt": "Tell me about trains",
                "batch_threshold": {"speculating": True, "reason": "1 rows", "milliseconds": [1]},
                "eagle3_capture": {"layers": [2, 30, 58]},
                "speculation": {
                    "watch": "phases",
                    "state": state,
                    "reason": reason,
                    "acceptance": counts.details(),
                    "phases": phases.details(),
                },
            }
        ],
    }


def seen(cycles: int = 4) -> tuple[Counts, Phases]:
    counts, phases = Counts(), Phases()
    for number in range(cycles):
        counts.launch(float(number))
        counts.observe(Step(3, [number % 4, 1]), number + 0.5)
        phases.add(Cycle(2, {"draft": 0.002, "verify": 0.01, "wait": 0.001}))
    return counts, phases


class Strict(HTMLParser):
    """Every element that is opened is closed; what is loaded from elsewhere is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [str(value) for name, value in attrs if name in ("src", "href", "action")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_page_is_whole_and_loads_nothing() -> None:
    page = render(of(info(*seen(), "degraded", "accept length <1.00>"), "http://u:pw@h:30000/?k=1"))
    parser = Strict()
    parser.feed(page)
    parser.close()
    assert parser.open == [] and parser.loads == []
    assert "url(" not in page and "<script" not in page
    text = " ".join(parser.texts)
    for part in (
        "http://h:30000",
        "degraded",
        "accept length <1.00>",
        "verify 76.9%",
        "2, 30, 58",
        "NCCL <ring>",
        "refused, and served all the same (report)",
        "slot 0 takes output of layer 1",
        "ids = <3, 1>",
        "07d2dc",
        "models/<draft>",
        "accept length 2.250",
    ):
        assert part in text, part


def test_no_secret_and_no_prompt_is_in_it() -> None:
    whole = info(*seen())
    assert all(secret in str(whole) for secret in SECRETS), "the test has its secrets"
    page = render(of(whole, "http://user:hunter2@host:1/path?api_key=sk-key"))
    assert [secret for secret in SECRETS if secret in page] == []


@pytest.mark.parametrize("missing", ["speculation", "batch_threshold", "eagle3_capture"])
def test_a_server_without_a_part_has_a_page(missing: str) -> None:
    whole = info(*seen())
    del whole["internal_states"][0][missing]
    Strict().feed(render(of(whole, "http://h:1")))


def test_a_draft_that_the_contract_was_not_asked_about_has_a_reason() -> None:
    whole = info(*seen())
    whole["spec_hardening"]["contract"] = {"mode": "enforce", "reason": "a file & no folder"}
    assert "not checked: a file &amp; no folder" in render(of(whole, "http://h:1"))


def test_a_server_that_has_decoded_nothing_has_a_page() -> None:
    page = render(of(info(Counts(), Phases()), "http://h:1"))
    assert "accept length none yet" in page


def test_a_plain_server_has_a_page() -> None:
    page = render(of({"internal_states": [{}], "version": "1"}, "https://h"))
    assert "No rank watches" in page


def test_urls_are_bared() -> None:
    assert bare("http://user:secret@host:30000/v1?key=1") == "http://host:30000"


STEPS = st.builds(
    lambda steps, counts: Step(steps, [min(count, steps) for count in counts]),
    st.integers(0, 4),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
)


@given(st.lists(STEPS, max_size=20), st.lists(STEPS, max_size=20))
def test_rates_of_an_interval_are_those_of_its_own_cycles(
    before: list[Step], during: list[Step]
) -> None:
    counts, phases = Counts(), Phases()

    def run(steps: list[Step]) -> Snapshot:
        for step in steps:
            counts.observe(step, 0.0)
            phases.add(Cycle(len(step.correct_drafts), {"verify": 0.002, "wait": 0.001}))
        return of(copy.deepcopy(info(counts, phases)), "http://h:1")

    first, second = run(before), run(during)
    rates = between(first, second)
    drafting = [
        (step.num_steps, n) for step in during if step.num_steps for n in step.correct_drafts
    ]
    if not drafting:
        assert rates.accept_length is None and rates.accept_rate is None
    else:
        accepted = sum(n for _, n in drafting)
        assert rates.accept_length == pytest.approx(1 + accepted / len(drafting))
        assert rates.accept_rate == pytest.approx(accepted / sum(steps for steps, _ in drafting))
        for position, rate in rates.positions:
            proposed = [n for steps, n in drafting if steps >= position]
            assert rate == pytest.approx(sum(n >= position for n in proposed) / len(proposed))
    if during:
        assert rates.cycle_ms == pytest.approx(3.0, rel=1e-6)
    else:
        assert rates.cycle_ms is None


def test_a_server_that_was_started_anew_counts_from_its_start() -> None:
    rates = between(of(info(*seen(9)), "http://h:1"), of(info(*seen(2)), "http://h:1"))
    assert rates.accept_length == pytest.approx(1 + 3 / 4)


@pytest.mark.parametrize("command", ["report", "top"])
def test_no_server_and_no_url_are_named(command: str, tmp_path: Any) -> None:
    done = CliRunner().invoke(main, [command, "http://user:pw@127.0.0.1:1"])
    assert done.exit_code == 1
    assert "is a server listening there" in done.output and "pw" not in done.output
    assert CliRunner().invoke(main, [command, "localhost:30000"]).exit_code == 2


@pytest.mark.parametrize("given", [["http://h:99999"], ["http://h:1", "--baseline", "http://h:a"]])
def test_so_it_is_by_smoke(given: list[str]) -> None:
    done = CliRunner().invoke(main, ["smoke", *given])
    assert done.exit_code == 2 and "give http://HOST:PORT" in " ".join(done.output.split())


@pytest.mark.parametrize("command", ["report", "top"])
@pytest.mark.parametrize("port", ["99999", "abc", "-1"])
def test_a_port_that_is_none_is_named(command: str, port: str) -> None:
    done = CliRunner().invoke(main, [command, f"http://h:{port}"])
    assert done.exit_code == 1 and "give http://HOST:PORT" in done.output


def test_a_page_into_a_folder_that_is_not_there(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = of(info(Counts(), Phases()), "http://h:1")
    monkeypatch.setattr("sglang_spec.watch.command.take", lambda url, key: found)
    output = tmp_path / "none/report.html"
    done = CliRunner().invoke(main, ["report", "http://h:1", "--output", str(output)])
    said = "".join(done.output.split())
    assert done.exit_code == 2 and f"{output}:Nosuchfile" in said
