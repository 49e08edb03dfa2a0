"""`auto`: a real server measures itself before it is ready, and its ranks decide alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kit
import pytest
from click.testing import CliRunner
from kit.counted_crossing import PROMPT, check_penalties
from kit.crossing import Crossing
from kit.faulty_server import FaultyServer
from kit.servers import ServerPool
from sglang.srt.spec_hardening.threshold import measure
from sglang_spec.client import Client
from sglang_spec.doctor.command import doctor
from sglang_spec.hardening.threshold.acceptance import Acceptance
from sglang_spec.models import Pair
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.server import Launch, Speculation

ODD_CLOCK = Path(kit.__file__).with_name("odd_clock.py")
ORACLE = Oracle(TINY)
PROMPTS = [[0, *range(70 + 9 * row, 90 + 9 * row)] for row in range(4)]
PHASES = ("decode", "decode_rest", "draft", "verify", "draft_extend", "cycle_rest")
STEPS = 3
LONG = 200
AUTO = ("--speculative-disable-batch-threshold", "auto", "--max-running-requests", "4")


def launch(pair: Pair, *flags: str) -> Launch:
    return Launch(
        pair.target,
        Speculation(pair.draft, STEPS),
        arguments=(*AUTO, *flags),
        environment={"SGLANG_ENABLE_RANK_CONSENSUS_CHECKER": "1"},
    )


def state(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/server_info").json()["internal_states"][0]
    return found


@pytest.fixture(scope="module")
def two_ranks(
    servers: ServerPool, tiny: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultyServer]:
    """Two ranks, of which the second's clock is wrong; the checker compares what they decide."""
    file = tmp_path_factory.mktemp("auto") / "clock"
    started = launch(tiny, "--tp-size", "2", "--skip-speculative-self-test")
    with FaultyServer(servers, started, file, "auto", ODD_CLOCK) as server:
        yield server


def test_the_table_is_measured_and_leaves_no_trace(two_ranks: FaultyServer) -> None:
    threshold = state(two_ranks.client)["batch_threshold"]
    # Some batches are of health probes; each cell that was measured took 47.
    assert threshold["batches_on"] < 20
    assert [threshold["batches_off"], threshold["switches"]] == [0, 0]
    short = threshold["milliseconds"][0]
    log = two_ranks.server.log.read_text(errors="replace")
    (took,) = re.findall(r"Batch threshold: costs of \d+ cells measured in ([\d.]+) s", log)
    if float(took) < measure.SECONDS:
        assert short["requests"] == [1, 2, 4]
    else:  # on a busy host, where no more than two cells are sure
        assert short["requests"] in ([1, 2, 4], [1, 4])
    assert all(len(short[phase]) == len(short["requests"]) for phase in PHASES)
    for phase in ("decode", "draft", "verify", "draft_extend"):
        assert min(short[phase]) > 0
    assert all(gain > 0 for gain in short["gain"])


def test_ranks_with_different_clocks_decide_alike(two_ranks: FaultyServer) -> None:
    """The checker would end both ranks at the first decision in which they differ."""
    client = two_ranks.client
    for count in (1, 4, 2, 4, 1):
        answers = client.generate_batch(PROMPTS[:count], 41, ignore_eos=True)
        assert [list(a.tokens) for a in answers] == [ORACLE.greedy(p, 41) for p in PROMPTS[:count]]
    threshold = state(client)["batch_threshold"]
    assert threshold["batches_on"] + threshold["batches_off"] > 20
    assert threshold["reason"].startswith("on" if threshold["speculating"] else "off")
    assert "tokens decode in" in threshold["reason"]
    # Every draft of the tiny pair is right, which is more than is assumed before any was seen.
    assumed = round(Acceptance(STEPS).accept_length, 3)
    assert (threshold["accept_length"] > assumed) == (threshold["batches_on"] > 0)
    told = CliRunner().invoke(doctor, ["threshold", two_ranks.server.url])
    assert told.exit_code == 0 and "tokens decode in" in told.stdout.splitlines()[0]
    assert "milliseconds a step" in told.stdout


def ask_until(server: FaultyServer, speculating: bool) -> dict[str, Any]:
    """One request after another, each answered rightly, until the state is that; what it is."""
    for _ in range(6):
        (answer,) = server.client.generate_batch(PROMPTS[:1], LONG, ignore_eos=True)
        assert list(answer.tokens) == ORACLE.greedy(PROMPTS[0], LONG)
        threshold = state(server.client)["batch_threshold"]
        print(threshold["reason"], threshold["refreshes"])
        if threshold["speculating"] is speculating:
            break
    return threshold


def test_a_machine_that_is_another_than_at_start_moves_the_state_of_both_ranks(
    two_ranks: FaultyServer,
) -> None:
    """Nothing but the table changes; the checker compares how many tables each rank has taken."""
    two_ranks.plant("30 0")
    before = ask_until(two_ranks, True)
    assert before["speculating"]
    # As much as turns the gain of one request, which the table says, into two thirds.
    table = before["milliseconds"][0]
    cycle = sum(table[phase][0] for phase in PHASES[2:])
    two_ranks.plant(f"0 {cycle * (1.5 * table['gain'][0] - 1):.0f}")
    after = ask_until(two_ranks, False)
    assert not after["speculating"] and after["refreshes"] > before["refreshes"]
    (slower, *_), (then, *_) = (one["milliseconds"][0]["cycle_to_start"] for one in (after, before))
    assert slower > 1.2 * then
    told = CliRunner().invoke(doctor, ["threshold", two_ranks.server.url]).stdout
    assert f"the table was refreshed {after['refreshes']} times" in told
    two_ranks.plant("")


def test_penalties_count_alike_while_the_state_moves(
    two_ranks: FaultyServer, tmp_path: Path
) -> None:
    """Off and on again, under requests whose answers depend on all that they put out before."""
    before = switches = state(two_ranks.client)["batch_threshold"]["switches"]
    for turn in range(8):
        two_ranks.plant(("30 0", "0 100")[turn % 2])
        check_penalties(Crossing(two_ranks, tmp_path), turn, count=8, only=PROMPT)
        switches = state(two_ranks.client)["batch_threshold"]["switches"]
        if switches >= before + 2:
            break
    two_ranks.plant("")
    assert switches >= before + 2
