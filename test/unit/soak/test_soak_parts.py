"""The parts of a soak that need no server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sglang_spec.models.tiny import TINY_HALF, Oracle
from soak import leaks, record
from soak.__main__ import arguments, within
from soak.case import Case, CaseError, Failing
from soak.drive import Outcome
from soak.judge import Rules, judge
from soak.leaks import MIB, Sample
from soak.planner import Planner
from soak.settings import Settings, chain
from soak.shrink import Shrinker

ORACLE = Oracle(TINY_HALF)
SETTINGS = Settings()
RULES = SETTINGS.rules()
PROMPT = (0, *range(70, 110))


def planner(seed: int = 3) -> Planner:
    return Planner(seed, SETTINGS.limits(), ORACLE.greedy)


def healthy(case: Case) -> Outcome:
    """What a server without faults answers a greedy case that is not left."""
    tokens = case.cut(ORACLE.greedy(case.prompt, case.new))
    drafts = [length - 1 for length in chain(ORACLE, tokens, 3)]
    return Outcome(
        case.number,
        tuple(tokens),
        {"type": "stop" if tokens[-1] in case.stops else "length"},
        {"spec_correct_drafts_histogram": [drafts.count(n) for n in range(4)]},
    )


def kinds(case: Case, outcome: Outcome) -> list[str]:
    expected = case.cut(ORACLE.greedy(case.prompt, case.new)) if case.greedy else None
    return [found.kind for found in judge(case, outcome, expected, RULES)]


def test_a_seed_gives_the_same_requests_again() -> None:
    assert planner().round(5, 40) == planner().round(5, 40)
    assert planner().round(5, 40) != planner(4).round(5, 40)
    assert planner().round(5, 40) != planner().round(6, 40)


def test_all_kinds_of_requests_are_planned() -> None:
    cases = [case for number in range(4) for case in planner().round(number, 60).cases]
    assert {case.leave for case in cases} == {"", "abort", "disconnect"}
    assert {case.greedy for case in cases} == {True, False}
    assert all(case.stream for case in cases if case.leave)
    assert any(case.stops and case.greedy for case in cases)
    assert any(case.logprobs for case in cases)
    names = {name for case in cases for name in case.sampling}
    assert {"top_k", "top_p", "min_p", "frequency_penalty", "presence_penalty"} <= names
    starts = [case.prompt[:30] for case in cases if len(case.prompt) > 30]
    assert len(set(starts)) < len(starts) - 20, "few prompts share a start"


def test_requests_may_be_shorter() -> None:
    options = arguments(["--prompt", "30", "--new", "9"])
    found = Planner(3, within(SETTINGS.limits(), options), ORACLE.greedy)
    cases = [case for number in range(4) for case in found.round(number, 40).cases]
    assert max(case.new for case in cases) == 9
    # One that goes on where an earlier answer was may be longer by an answer.
    assert max(len(case.prompt) for case in cases) <= 30 + 9
    assert within(SETTINGS.limits(), arguments([])) == SETTINGS.limits()


def test_requests_too_short_to_be_drawn_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--new", "2"])
    assert "--new 2: give 3 tokens or more" in capsys.readouterr().err


def test_a_heavy_round_asks_for_more_than_the_pool_holds() -> None:
    heavy = planner().round(2, 40)
    wanted = sum(len(case.prompt) + case.new for case in heavy.cases) / 40 * heavy.at_once
    assert wanted > 1.5 * SETTINGS.pool


def test_failing_requests_are_written_and_read(tmp_path: Path) -> None:
    cases = planner().round(1, 20).cases
    failing = Failing(3, 1, 4, SETTINGS.written(), cases, ("request 20: tokens: …",))
    failing.write(tmp_path / "f.json")
    read = Failing.read(tmp_path / "f.json")
    assert read.cases == cases
    assert (read.seed, read.round, read.at_once, read.said) == (3, 1, 4, failing.said)
    assert Settings.read(read.settings) == SETTINGS


@pytest.mark.parametrize("text", ["", "{}", '{"format": "other"}'])
def test_another_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(CaseError, match=r"f\.json"):
        Failing.read(tmp_path / "f.json")


def test_a_healthy_answer_is_no_finding() -> None:
    for new in (1, 2, 17, 60):
        case = Case(0, PROMPT, new)
        assert kinds(case, healthy(case)) == []
    stop = ORACLE.greedy(PROMPT, 9)[8]
    case = Case(0, PROMPT, 40, {"temperature": 0, "stop_token_ids": [stop]})
    assert len(healthy(case).tokens) <= 9
    assert kinds(case, healthy(case)) == []


def test_each_fault_is_its_kind_of_finding() -> None:
    case = Case(0, PROMPT, 40)
    good = healthy(case)
    wrong = (*good.tokens[:7], good.tokens[7] ^ 1, *good.tokens[8:])
    assert kinds(case, replace(good, tokens=wrong)) == ["tokens"]
    assert kinds(case, replace(good, tokens=good.tokens[:-1])) == ["tokens"]
    assert kinds(case, replace(good, finish={"type": "stop"})) == ["length"]
    assert kinds(case, replace(good, error="HTTP 500")) == ["error"]
    meta = {"spec_correct_drafts_histogram": [39]}
    assert kinds(case, replace(good, meta=meta)) == ["acceptance"]
    assert kinds(case, replace(good, meta={**meta, "num_retractions": 1})) == []
    with_logprobs = replace(case, logprobs=2)
    assert kinds(with_logprobs, good) == ["logprobs"]


def test_a_sampled_answer_has_its_length_and_possible_tokens() -> None:
    case = Case(0, PROMPT, 3, {"temperature": 1.0})
    ends = {"type": "length"}
    assert kinds(case, Outcome(0, (70, 71, 72), ends)) == []
    assert kinds(case, Outcome(0, (70, 71), ends)) == ["length"]
    assert kinds(case, Outcome(0, (70, 4, 72), ends)) == ["impossible"]


def test_a_client_that_left_saw_the_start_of_the_answer() -> None:
    case = Case(0, PROMPT, 40, stream=True, leave="abort", leave_after=5)
    tokens = tuple(ORACLE.greedy(PROMPT, 40))
    ends = {"type": "abort"}
    assert kinds(case, Outcome(0, tokens[:6], ends)) == []
    assert kinds(case, Outcome(0, (), ends)) == []
    assert kinds(case, Outcome(0, (*tokens[:5], tokens[5] ^ 1), ends)) == ["tokens"]


def test_an_abort_may_keep_what_its_last_verify_accepted() -> None:
    case = Case(0, PROMPT, 4, stream=True, leave="abort", leave_after=1)
    tokens = tuple(ORACLE.greedy(PROMPT, 12))
    ends = {"type": "abort"}
    assert kinds(case, Outcome(0, tokens[:7], ends)) == []
    assert kinds(case, Outcome(0, tokens[:8], ends)) == ["tokens"]
    assert kinds(case, Outcome(0, tokens[:7], {"type": "length"})) == ["tokens"]
    wrong = (tokens[0] ^ 1, *tokens[1:6])
    assert kinds(case, Outcome(0, wrong, ends)) == ["tokens"]


def test_without_an_oracle_tokens_are_still_compared() -> None:
    case = Case(0, (5, 6), 2)
    found = judge(case, Outcome(0, (1, 2), {"type": "length"}), [1, 3], Rules())
    assert [difference.kind for difference in found] == ["tokens"]


def test_only_what_the_fault_needs_is_kept() -> None:
    """The fault: a streamed request beside one with a prompt of ten tokens or more."""

    def fails(cases: Sequence[Case]) -> bool:
        return any(case.stream for case in cases) and any(len(case.prompt) >= 10 for case in cases)

    cases = planner().round(0, 60).cases
    assert fails(cases)
    shrunk = Shrinker(fails, 30).shrink(cases)
    assert shrunk.repeats
    assert len(shrunk.cases) <= 2
    assert fails(shrunk.cases)
    assert max(len(case.prompt) for case in shrunk.cases) < 20
    assert {case.new for case in shrunk.cases} == {1}
    assert {case.leave for case in shrunk.cases} == {""}
    assert {tuple(case.sampling) for case in shrunk.cases} == {("temperature",)}


def test_a_fault_of_luck_is_told() -> None:
    cases = planner().round(0, 20).cases
    shrunk = Shrinker(lambda _: False, 30).shrink(cases)
    assert not shrunk.repeats
    assert shrunk.cases == cases


def test_the_time_for_shrinking_ends() -> None:
    cases = planner().round(0, 60).cases
    shrunk = Shrinker(lambda _: True, -1).shrink(cases)
    assert shrunk.tries == 1


def samples(**growth: float) -> list[Sample]:
    """Twelve samples; `host_memory=1.5` grows by that many MiB a round."""
    start = {"host_memory": 900 * MIB, "files": 300, "shared_memory": 2}
    scale = {"host_memory": MIB}
    return [
        Sample(
            number * 100,
            0,
            **{
                name: int(value + number * growth.get(name, 0) * scale.get(name, 1))
                for name, value in start.items()
            },
        )
        for number in range(12)
    ]


def test_steady_figures_are_no_leak() -> None:
    assert leaks.leaks(samples()) == []
    assert leaks.leaks(samples(host_memory=2.0)) == []


@pytest.mark.parametrize(
    ("kind", "per_round"), [("host_memory", 10.0), ("files", 3.0), ("shared_memory", 1.0)]
)
def test_growth_is_a_leak(kind: str, per_round: float) -> None:
    assert [leak.kind for leak in leaks.leaks(samples(**{kind: per_round}))] == [kind]


def test_what_caches_take_at_first_is_no_leak() -> None:
    grown = samples(host_memory=40.0)[:4] + [
        replace(one, host_memory=samples(host_memory=40.0)[3].host_memory) for one in samples()[4:]
    ]
    assert leaks.leaks(grown) == []


def test_kv_at_rest_is_a_leak_at_once() -> None:
    assert [leak.kind for leak in leaks.leaks([Sample(50, 0), Sample(100, 3)])] == ["kv"]


@pytest.mark.parametrize(("visible", "used"), [("", 7), ("1", 5), ("GPU-a", 2), ("0,1", 7)])
def test_another_gpu_of_the_host_is_not_watched(
    visible: str, used: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho '0, GPU-a, 2 MiB'\necho '1, GPU-b, 5 MiB'\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert leaks.used_gpu_memory() == used * MIB


def test_runs_are_kept_side_by_side_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "soak.json"

    def run(seed: int, requests: int) -> dict[str, object]:
        return {
            "device": "cpu",
            "settings": SETTINGS.written(),
            "seed": seed,
            "requests": requests,
            "differences": [],
            "leaks": ["one"],
        }

    record.write(file, [run(1, 100)])
    record.write(file, [run(2, 50)])
    record.write(file, [run(1, 200)])
    assert [entry["requests"] for entry in record.read(file)] == [50, 200]
    assert '"requests": 250' in file.read_text()
