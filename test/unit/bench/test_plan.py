"""Which servers are up together, in which order, and what a run costs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from sglang_spec.bench import command, corpus, mode, subject
from sglang_spec.bench.cells import grid
from sglang_spec.bench.runner import Plan
from sglang_spec.bench.side import Side, names
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation

CELLS = grid([64], [1, 4], [], 6, 16)


def launched(*sides: str) -> tuple[Side, ...]:
    return tuple(Side(name, Launch(Path(name))) for name in sides)


def plan(sides: tuple[Side, ...], together: int) -> Plan:
    return Plan(sides, CELLS, 2, together, corpus.of_tiny(), Path("logs"))


def groups(sides: tuple[Side, ...], together: int) -> list[list[str]]:
    return [[side.name for side in group] for group in plan(sides, together).groups()]


def test_the_baseline_is_beside_each_group_or_measured_first_and_last() -> None:
    sides = launched("none", "a", "b", "c")
    assert groups(sides, 1) == [["none"], ["a"], ["b"], ["c"], ["none"]]
    assert groups(sides, 2) == [["none", "a"], ["none", "b"], ["none", "c"]]
    assert groups(sides, 3) == [["none", "a", "b"], ["none", "c"]]
    assert groups(launched("none"), 1) == [["none"]]
    assert groups(launched("none"), 2) == [["none"]]


def test_servers_that_run_take_no_room() -> None:
    base, other = Side("base", url="http://a"), Side("other", url="http://b")
    assert groups((base, other), 1) == [["base", "other"]]
    assert groups((base, other, *launched("x", "y")), 1) == [["base", "other", "x"], ["base", "y"]]
    assert groups((*launched("none", "x"), other), 1) == [["none", "other"], ["x"], ["none"]]


def test_the_cost_counts_servers_and_tokens() -> None:
    cost = plan(launched("none", "a", "b"), 2).cost()
    assert cost == {
        "servers_started": 3,  # the baseline stays up
        "measurements": 4 * 2 * 2,
        "requests": 4 * 2 * 12,
        "output_tokens": 4 * 2 * 12 * 16,
    }
    assert plan(launched("none", "a", "b"), 1).cost()["servers_started"] == 4


def test_a_side_is_launched_or_runs_and_has_a_name_of_its_own() -> None:
    with pytest.raises(ValueError, match="not both"):
        Side("x")
    with pytest.raises(ValueError, match="called a"):
        names(launched("a", "b", "a"))


def test_the_flags_of_a_side_are_its_speculative_arguments(tmp_path: Path) -> None:
    pair = subject.Subject("own", Pair(Path("t"), Path("d")), corpus.of_tiny())
    common = subject.settings(pair, CELLS, 8, ("--tp-size", "2"), "float32")
    by_name = {side.name: side for side in subject.of_modes(mode.ALL, common)}
    assert by_name["none"].flags == ""
    assert by_name["threshold"].flags.endswith("--speculative-disable-batch-threshold 8")
    assert by_name["adaptive"].flags.endswith("--speculative-adaptive")
    command_line = by_name["static"].settings()["command"]
    assert "--tp-size 2" in command_line
    assert "--max-running-requests 4" in command_line
    tree = Launch(Path("t"), Speculation(Path("d"), 3, 4, 16))
    assert "--speculative-eagle-topk 4 --speculative-num-draft-tokens 16" in subject.flags(tree)


def test_servers_that_share_a_gpu_have_a_cache_of_given_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SGLANG_TARGET_DEVICE", "cuda")
    pair = subject.Subject("own", Pair(Path("t"), Path("d")), corpus.of_tiny())
    large = grid([2048], [128], [], 128, 96)

    def command_line(together: int, *extra: str) -> str:
        common = subject.settings(pair, large, 8, extra, "auto", together)
        return " ".join(mode.launch("static", common).command(1))

    assert "--max-total-tokens" not in command_line(1)
    assert "--mem-fraction-static" not in command_line(1)
    assert f"--max-total-tokens {128 * (2048 + 96 + 16)} " in command_line(2) + " "
    assert "--mem-fraction-static 0.96" in command_line(2)
    # The last one counts.
    assert command_line(2, "--mem-fraction-static", "0.5").endswith("--mem-fraction-static 0.5")


def test_another_environment_is_launched_by_its_own_python(tmp_path: Path) -> None:
    python = tmp_path / "python"
    common = subject.settings(
        subject.Subject("own", Pair(Path("t"), Path("d")), corpus.of_tiny()), CELLS, 8, (), "auto"
    )
    side = subject.of_upstream(python, common)
    assert side.launch is not None
    words = ("env", "-u", "PYTHONPATH", str(python))
    assert side.launch.command(1)[:6] == [*words, "-m", "sglang.launch_server"]
    assert side.launch == replace(mode.launch("static", common), python=words)
    assert side.settings()["python"].endswith(str(python))


def test_a_checkpoint_is_known_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    first = subject.checkpoint(tmp_path)
    assert first == subject.checkpoint(tmp_path) and first["bytes"] == 2
    (tmp_path / "config.json").write_text("[]")
    assert subject.checkpoint(tmp_path)["sha256"] != first["sha256"]
    assert subject.checkpoint(Path("some/hub-id"))["sha256"] is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--mode", "fast"], "known are none"),
        (["--mode", "none,none"], "two sides are called none"),
        (["--mode", ""], "nothing to measure"),
        (["--model", "x"], "both --model and --draft"),
        (["--model", "x", "--draft", "y"], "acceptance on random tokens misleads"),
        (["--concurrency", "8", "--requests", "2"], "cannot run 8 at a time"),
        (["--mode", "none,threshold"], "--threshold 32 is above all loads; they reach 4"),
        (["--concurrency", "a"], "no list of numbers"),
        (["--url", "x=localhost:1"], "NAME=http"),
        (["--url", "x=http://h:99999"], "NAME=http"),
        (["--url", "x=http://h:abc"], "NAME=http"),
        (["--rate", "nan"], "a load of nan"),
        (["--rate", "inf"], "a load of inf"),
        (["--num-steps", "0"], "0 is not in the range"),
        (["--threshold", "0"], "0 is not in the range"),
        (["--url", "x=http://h:1", "--", "--api-key", "k1"], "--api-key ***: arguments go to"),
    ],
)
def test_wrong_usage_says_what_is_right(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(command.bench, ["--pair", "tiny", "--dry-run", *arguments])
    assert done.exit_code == 2 and says in " ".join(done.output.replace("│", " ").split())


def test_of_servers_that_run_it_has_to_be_said_what_they_serve() -> None:
    done = CliRunner().invoke(command.bench, ["--url", "x=http://127.0.0.1:1", "--dry-run"])
    assert done.exit_code == 2 and "say what the servers serve" in done.output


def test_a_dry_run_starts_nothing_and_tells_the_cost(tmp_path: Path) -> None:
    arguments = ["--pair", "tiny", "--dry-run", "--json", "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(command.bench, [*arguments, "--mode", "none,static,auto"])
    told = json.loads(done.stdout)
    assert told["groups"] == [["none"], ["static"], ["auto"], ["none"]]
    assert told["cost"]["measurements"] == 4 * 2 * 3
    assert not (tmp_path / "out").exists()


def test_arguments_go_to_the_servers_that_are_started_beside_a_url() -> None:
    arguments = ["--pair", "tiny", "--dry-run", "--url", "x=http://h:1", "--mode", "none"]
    done = CliRunner().invoke(command.bench, [*arguments, "--", "--log-level", "warning"])
    assert done.exit_code == 0 and "--log-level warning" in done.output


def test_prompts_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b"\xff\xfe")
    done = CliRunner().invoke(
        command.bench, ["--pair", "tiny", "--dry-run", "--prompts", str(path)]
    )
    assert done.exit_code == 2 and "write the prompts as UTF-8" in " ".join(done.output.split())
