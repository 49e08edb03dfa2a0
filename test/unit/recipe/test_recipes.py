"""Every recipe becomes a command on a machine without GPUs, and upstream's parser takes it."""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kit.recipes import MACHINES, RECIPES, facts, recipe
from sglang_spec.recipe.arguments import flags
from sglang_spec.recipe.command import serve
from sglang_spec.recipe.keys import key_of
from sglang_spec.recipe.read import load
from sglang_spec.recipe.sections import OFF, SECTIONS


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    """Upstream's own, without abbreviations: a flag that was renamed to a longer one is not it."""
    from sglang.srt.server_args import ServerArgs

    found = argparse.ArgumentParser(allow_abbrev=False)
    ServerArgs.add_cli_args(found)
    return found


def dry_run(name: str, *more: str) -> Any:
    arguments = [str(recipe(name)), "--dry-run", "--facts", str(facts(name)), *more]
    return CliRunner().invoke(serve, arguments)


def test_all_are_here() -> None:
    assert {path.stem for path in RECIPES.glob("*.toml")} == set(MACHINES)


@pytest.mark.parametrize("name", MACHINES)
def test_dry_run(name: str) -> None:
    result = dry_run(name, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["accepted"] and told["problems"] == []
    assert told["command"][1:3] == ["-m", "sglang.launch_server"]
    text = dry_run(name)
    assert text.exit_code == 0
    for word in told["command"]:
        assert word in text.stdout


@pytest.mark.parametrize("name", MACHINES)
def test_upstream_parses_what_a_recipe_makes(name: str, parser: argparse.ArgumentParser) -> None:
    made = load(recipe(name))
    args = parser.parse_args(flags(made))
    assert args.model_path == made.model.path
    assert made.draft is not None and args.speculative_draft_model_path == made.draft.path
    assert args.speculative_num_draft_tokens == made.draft.num_draft_tokens
    assert args.max_running_requests == made.limits.max_running_requests
    assert args.tp_size == made.nodes.tp_size
    assert args.enable_hierarchical_cache == (made.hierarchical_cache is not None)


def _keys() -> list[Any]:
    return [
        pytest.param(key_of(one), id=f"{name}.{one.name}")
        for name, section in SECTIONS.items()
        for one in fields(section)
        if key_of(one).flag
    ]


@pytest.mark.parametrize("key", _keys())
def test_upstream_has_the_flag_of_a_key(key: Any, parser: argparse.ArgumentParser) -> None:
    actions = {flag: action for action in parser._actions for flag in action.option_strings}
    assert key.flag in actions
    choices = actions[key.flag].choices
    if choices and key.one_of:
        assert set(key.one_of) - {OFF} <= set(choices)


def test_flags_without_a_key_exist_too(parser: argparse.ArgumentParser) -> None:
    changes = ["comm.fusion=off", "extra.flags=['--sleep-on-idle']"]
    made = flags(load(recipe("kimi-k2.5-h200"), changes))
    args = parser.parse_args(made)
    assert args.enforce_disable_flashinfer_allreduce_fusion
    assert parser.parse_args(flags(load(recipe("embedded")))).device == "cpu"
    assert args.enable_hierarchical_cache and args.sleep_on_idle
    with pytest.raises(SystemExit):  # what a renamed flag would do
        parser.parse_args([*made, "--speculative-comm-plans", "auto"])


def test_two_nodes() -> None:
    changes = ["nodes.count=2", "nodes.rank=1", "nodes.leader=10.0.0.1:20000", "machine.gpus=4"]
    made = flags(load(recipe("kimi-k2.5-h200"), changes))
    pairs = dict(itertools.pairwise(made))
    assert (pairs["--nnodes"], pairs["--node-rank"]) == ("2", "1")
    assert pairs["--dist-init-addr"] == "10.0.0.1:20000"
    assert "--nnodes" not in flags(load(recipe("kimi-k2.5-h200")))


def test_the_plan_and_the_contract_are_told() -> None:
    told = json.loads(dry_run("kimi-k2.5-rtx-pro-6000", "--json").stdout)
    choices = {one["name"]: one for one in told["comm"]["choices"]}
    assert choices["pcie_ipc"]["on"] and choices["pcie_ipc"]["by"] == "plan"
    assert any("contract not checked" in note for note in told["notes"])
    told = json.loads(dry_run("embedded", "--json").stdout)
    assert [slot["takes"] for slot in told["contract"]["slots"]] == [
        "output of layer 3",
        "output of layer 15",
        "output of layer 27",
    ]


def test_it_needs_no_torch() -> None:
    program = (
        "import sys\nsys.modules['torch'] = None\n"
        "from sglang_spec.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    sys.exit(9 if 'sglang' in sys.modules else end.code)\n"
    )
    name = "kimi-k2.5-b200"
    arguments = ["serve", str(recipe(name)), "--dry-run", "--facts", str(facts(name))]
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_it_becomes_the_server(tmp_path: Path) -> None:
    """Run for real with a program in place of the server's interpreter: same pid, its command."""
    program = (
        "import os, sys\nfrom sglang_spec.recipe import command\n"
        "print(os.getpid(), flush=True)\n"
        "sys.executable = '/bin/sh'\n"
        "from sglang_spec.recipe import arguments\n"
        "arguments.command = lambda recipe: "
        "['/bin/sh', '-c', 'echo $$ $0 $OMP_NUM_THREADS', *arguments.flags(recipe)]\n"
        "command.serve.main([sys.argv[1]])\n"
    )
    arguments = [sys.executable, "-c", program, str(recipe("embedded"))]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=600)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[-1] == f"{lines[0]} --model-path 2"
