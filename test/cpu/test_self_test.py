"""The start-up self-test: what it proves, that it leaves no trace, what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit import checkpoints
from kit.broken_server import run_broken
from kit.fault_run import Outcome
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Server, ServerError, Speculation

STEPS = 3
METRICS = ("--enable-metrics", "--enable-cache-report")


def _launch(pair: Pair, *arguments: str, **environment: str) -> Launch:
    return Launch(
        pair.target,
        Speculation(pair.draft, STEPS, 1, STEPS + 1),
        arguments=("--skip-server-warmup", "--random-seed", "7", *METRICS, *arguments),
        environment=environment,
    )


def _info(client: Client) -> dict[str, Any]:
    body: dict[str, Any] = client.get("/server_info").json()
    return body


@pytest.fixture(scope="module")
def proven(servers: ServerPool, tiny: Pair) -> Client:
    return servers.client(_launch(tiny, "--chunked-prefill-size", "64"))


def test_it_decodes_in_every_mode_before_the_server_is_ready(proven: Client) -> None:
    found = _info(proven)["speculative_self_test"]
    assert found["state"] == "proven"
    assert found["accept_length"] == STEPS + 1  # of the pair that is right by construction
    wanted = {"greedy", "prefix hit", "batch of 3", "sampled", "chunked prefill"}
    assert wanted <= set(found["modes"]), found
    assert found["cycles"] > 0 and found["seconds"] > 0


def test_nothing_is_left_out_on_a_server_with_default_flags(
    servers: ServerPool, embedded: Pair, record_property: Callable[[str, object], None]
) -> None:
    """A vocabulary with digits has a grammar; chunks of thousands of tokens are cut down. Also
    the time of the whole test on the embedded pair: 20 s on two idle cores, docs/readiness.md."""
    found = _info(servers.client(Launch(embedded.target, Speculation(embedded.draft))))
    test = found["speculative_self_test"]
    assert {"grammar", "chunked prefill in chunks of 64"} <= set(test["modes"]), test
    assert test["left_out"] == []
    assert test["accept_length"] > 1.3
    record_property("self_test_seconds", test["seconds"])
    print(f"self-test of the embedded pair: {test['seconds']:.1f} s")


def test_it_runs_every_state_of_adaptive_speculation_and_the_switch(
    servers: ServerPool, tiny: Pair, tmp_path: Path
) -> None:
    """The server starts with three draft steps; two and none would first be run under load."""
    config = tmp_path / "adaptive.json"
    config.write_text(
        json.dumps({"1": {"candidate_steps": [2, STEPS]}, "8": {"candidate_steps": [0]}})
    )
    flags = ("--speculative-adaptive", "--speculative-adaptive-config", str(config))
    with servers.start(_launch(tiny, *flags)) as server:
        server.wait_ready()
        client = Client(server.url)
        found = _info(client)["speculative_self_test"]
        answer = client.generate([0, *range(70, 110)], 17, ignore_eos=True)
        client.close()
    wanted = {"0 draft steps", "2 draft steps", "3 draft steps", "switch of draft steps"}
    assert found["state"] == "proven" and wanted <= set(found["modes"]), found
    assert answer.correct_drafts == (0, 0, 0, 4)  # the policy is where it was


def _metric(text: str, name: str) -> float:
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if re.match(rf"sglang:{name}(_total)?{{", line)
    )


def test_it_leaves_no_trace(servers: ServerPool, tiny: Pair, proven: Client) -> None:
    """A server that ran it and one that did not cannot be told apart by what they do next.

    The first answer is drawn from a flat distribution, so it tells the state of the generator.
    """
    launch = _launch(tiny, "--chunked-prefill-size", "64", "--skip-speculative-self-test")
    skipped = servers.client(launch)
    prompt = [0, *range(70, 110)]
    seen = []
    for client in (proven, skipped):
        text = client.get("/metrics").text
        counts = {
            name: _metric(text, name)
            for name in ("spec_verify_calls", "prompt_tokens", "generation_tokens", "num_requests")
        }
        state = _info(client)["internal_states"][0]
        first = client.generate(prompt, 12, temperature=50.0, ignore_eos=True)
        seen.append(
            (counts, state.get("avg_spec_accept_length"), first.tokens, first.meta["cached_tokens"])
        )
    assert seen[0] == seen[1]
    assert not any(seen[0][0].values())
    ran = servers.server(_launch(tiny, "--chunked-prefill-size", "64"))
    text = ran.log.read_text(errors="replace")
    assert "self-test: proven" in text and "self-test greedy" not in text  # a request's name


def test_skipped_it_is_unproven_everywhere(servers: ServerPool, tiny: Pair) -> None:
    launch = _launch(tiny, "--chunked-prefill-size", "64", "--skip-speculative-self-test")
    client = servers.client(launch)
    found = _info(client)["speculative_self_test"]
    assert found["state"] == "unproven" and "--skip-speculative-self-test" in found["reason"]
    assert 'state="unproven"' in client.get("/metrics").text
    assert "self-test: unproven" in servers.server(launch).log.read_text(errors="replace")


def _refusal(server: Server) -> str:
    with server, pytest.raises(ServerError):
        server.wait_ready()
    lines = [line for line in server.log.read_text(errors="replace").splitlines() if line.strip()]
    assert server.returncode not in (None, 0)
    return lines[-1]


# What is wrong in the steps of one mode only, and the mode that the refusal names.
WRONG = {
    "greedy": "greedy",
    "hit": "prefix hit",
    "batch": r"batch of \d",
    "chunked": "chunked prefill in chunks of 64",
}


@pytest.mark.parametrize("mode", WRONG)
def test_a_verify_that_is_wrong_in_one_mode_is_refused_by_the_modes_name(
    servers: ServerPool, tiny: Pair, mode: str
) -> None:
    """Nothing throws and nothing is NaN: only the teacher sees it. 2 s each."""
    outcome = run_broken(servers.zygote, tiny, f"verify {mode}")
    _named(outcome, f"mode {WRONG[mode]}: token .* in a plain prefill of the same text")


@pytest.mark.full
@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("sampled", "mode sampled: token .* where number 8 has"),
        ("grammar", "mode grammar: digit .* in a plain prefill of the same text"),
    ],
)
def test_a_verify_that_is_wrong_for_sampled_or_constrained_text_is_refused(
    servers: ServerPool, embedded: Pair, mode: str, says: str
) -> None:
    """The embedded pair, as the tiny one spells no digits and has an only choice; 10 s each."""
    _named(run_broken(servers.zygote, embedded, f"verify {mode}"), says)


def _named(outcome: Outcome, says: str) -> None:
    assert outcome.code == 1 and not outcome.greens and not outcome.left, outcome
    assert re.search(f"rank TP0 .* stage self_test .*{says}", outcome.line), outcome


def _deaf(tiny: Pair, folder: Path) -> Pair:
    """The tiny pair with a draft whose head names the wrong token every time."""

    def roll(tensors: checkpoints.Tensors) -> None:
        name = next(name for name in tensors if name.endswith("lm_head.weight"))
        tensor = tensors[name]
        half = len(tensor.data) // 2
        tensors[name] = replace(tensor, data=tensor.data[half:] + tensor.data[:half])

    return replace(tiny, draft=checkpoints.copy(tiny.draft, folder / "draft", tensors=roll))


def test_a_draft_that_accepts_nothing_is_refused_by_the_floor(
    servers: ServerPool, tiny: Pair, tmp_path: Path
) -> None:
    deaf = _deaf(tiny, tmp_path)
    line = _refusal(servers.start(_launch(deaf, "--speculative-min-accept-length", "1.5")))
    assert "rank TP0" in line and "stage self_test" in line
    measured = re.search(r"accept length (\d\.\d+) over (\d+) verify cycles", line)
    assert measured is not None and 1.0 <= float(measured[1]) < 1.5, line
    assert "--speculative-min-accept-length 1.5" in line and "contract" in line
    assert "captured layers" in line and "eagle_aux_hidden_state_layer_ids" in line


def test_forced_acceptance_is_unproven_not_failed(servers: ServerPool, tiny: Pair) -> None:
    floor = ("--speculative-min-accept-length", "4.5")
    server = servers.start(_launch(tiny, *floor, SGLANG_SIMULATE_ACC_LEN="2.5"))
    with server:
        server.wait_ready()
        client = Client(server.url)
        found = _info(client)["speculative_self_test"]
        client.close()
    assert found["state"] == "unproven" and "SGLANG_SIMULATE_ACC_LEN" in found["reason"]
    assert found["reason"].endswith("; --speculative-min-accept-length 4.5 is not held")
