"""Every command in the guides: run where it can be, else parsed by the program that it is for.

`sglang-spec` is run (`serve` as a dry run on a recorded machine, what needs a server without one,
what takes minutes only parsed), `make` as `make -n`, `pip` with its options checked. Of what no
test host has (systemctl, docker, kubectl) the syntax is checked, and that files it names exist.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from kit import guide
from kit.recipes import FACTS, MACHINES, ROOT
from sglang_spec.cli import main
from vendoring import cli as vendoring_cli

GUIDES = ("install", "kimi-k2.5", "operations", "tuning", "patching", "upstreaming")
# Minutes, a whole report for a server that is not there, or a log of traffic that nobody has.
SLOW = ("smoke", "comm-bench", "advise")
MEASURED = ("bench", "sweep", "canary")
OWN_FILES = ("deploy/", "recipes/", "test/", "patches/", "python/")


def of_guides() -> list[tuple[str, str]]:
    return [(name, line) for name in GUIDES for line in guide.commands(ROOT / f"docs/{name}.md")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like the checkout, so that what a command writes is not in it.

    One for all commands: a later one reads what an earlier one wrote.
    """
    folder = tmp_path_factory.mktemp("guide")
    for path in ROOT.iterdir():
        if path.name not in ("build", ".git"):
            (folder / path.name).symlink_to(path)
    return folder


def own(words: list[str]) -> None:
    """One of our commands, run in this process."""
    if words[0] in MEASURED:
        measured(words)
        return
    if words[0] in SLOW:
        command = main.get_command(click.Context(main), words[0])
        assert command is not None
        try:
            command.make_context(words[0], words[1:])
        except click.BadParameter as error:  # all options are known, and a file is not here
            assert "does not exist" in error.message, error.message
        return
    words = list(words)
    recipes = [Path(word).stem for word in words if word.endswith(".toml")]
    if words[0] == "serve" or words[:2] == ["doctor", "node"]:
        facts = FACTS / f"{MACHINES.get(recipes[0], 'h200-x8')}.json"
        words += ["--facts", str(facts)] if "--facts" not in words else []
        words += ["--dry-run"] if words[0] == "serve" and "--dry-run" not in words else []
        expected = {0}
    elif words[0] == "contract" or words[0] in ("ready", "roll"):
        expected = {1}  # neither the model nor a server is here, and that is what it says
    elif words[1:2] == ["capture"] or (words[1:2] == ["kv"] and words[-1].startswith("http")):
        expected = {1}
    elif words[1:2] == ["kv"]:
        expected = {2}  # the model is not here
    elif words == ["doctor"]:
        expected = {0, 1}  # 1 where somebody is editing the tree
    else:
        expected = {0}
    result = CliRunner().invoke(main, words)
    assert result.exit_code in expected, result.output
    assert result.exit_code != 2 or "does not exist" in result.output


def measured(words: list[str]) -> None:
    """As a dry run; of models that are not here, with the embedded pair in their place."""
    own_, dash, servers = words, [], []  # type: ignore[var-annotated]
    if "--" in words:
        at = words.index("--")
        own_, dash, servers = words[:at], ["--"], words[at + 1 :]
    own_ = [*own_, "--dry-run"] if "--dry-run" not in own_ else list(own_)
    for flag in ("--model", "--draft", "--prompts"):
        if flag in own_:
            del own_[own_.index(flag) : own_.index(flag) + 2]
    result = CliRunner().invoke(main, [*own_, *dash, *servers])
    assert result.exit_code == 0, result.output


def vendored(words: list[str]) -> None:
    """Parsed as it would be; what these commands do is tested in test/unit/vendoring."""
    if words[:1] != ["git"]:
        vendoring_cli._parser().parse_args(words)


def python_module(words: list[str]) -> None:
    """`python -m vendoring …`, or a router's, or an environment."""
    assert words[0] == "-m"
    if words[1] == "vendoring":
        vendored(words[2:])
    else:
        (venv if words[1] == "venv" else router)(words)


def on_a_gpu_machine(words: list[str]) -> None:
    """Its options are those of the script that the pack brings."""
    text = (ROOT / "python/vendoring/gpu/run-gpu.sh").read_text()
    own_ = words[: words.index("--")] if "--" in words else words
    assert all(f"{word})" in text for word in own_ if word.startswith("--")), words


def make(words: list[str]) -> None:
    done = subprocess.run(["make", "-n", *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def pip(words: list[str]) -> None:
    """Each option is one of that sub-command."""
    assert {word for word in words[1:] if word.startswith("-")} <= pip_options(words[0])
    assert all((ROOT / word).exists() for word in words if word == "python")


@lru_cache
def pip_options(command: str) -> set[str]:
    arguments = [sys.executable, "-m", "pip", command, "--help"]
    text = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    return {word.strip(",") for word in text.split() if word.startswith("-")}


def venv(words: list[str]) -> None:
    assert words[:2] == ["-m", "venv"] and len(words) == 3


def router(words: list[str]) -> None:
    """Parsed by the router itself where it is installed."""
    assert words[:2] == ["-m", "sglang_router.launch_router"]
    if importlib.util.find_spec("sglang_router") is not None:
        launch = importlib.import_module("sglang_router.launch_router")
        launch.parse_router_args(words[2:])


def elsewhere(words: list[str]) -> None:
    """What runs on a host that no test has: the files of ours that it names are here."""
    assert all((ROOT / word).exists() for word in words if word.startswith(OWN_FILES))


def mkdir(words: list[str]) -> None:
    """A folder that git is not told of, inside one that is here."""
    assert words[0] == "-p" and (ROOT / words[1]).parent.is_dir()
    assert f"/{words[1]}/" in (ROOT / ".gitignore").read_text()


def copy(words: list[str]) -> None:
    """`cp` of one of our files, really done."""
    Path(words[1]).write_bytes(Path(words[0]).read_bytes())


ELSEWHERE = (
    *("sudo", "journalctl", "docker", "kubectl", "curl", "export"),
    *("git", "tar", "pre-commit", "alias", "$EDITOR", "echo", "cd"),
)
PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "sglang-spec": own,
    ".venv/bin/sglang-spec": own,
    "make": make,
    "pip": pip,
    ".venv/bin/pip": pip,
    "/opt/sglang-router/bin/pip": pip,
    "/opt/sglang-router/bin/python": router,
    "python3": python_module,
    "../.venv/bin/python": python_module,
    "vendoring": vendored,
    "sglang-spec/run-gpu.sh": on_a_gpu_machine,
    "cp": copy,
    "mkdir": mkdir,
    **dict.fromkeys(ELSEWHERE, elsewhere),
}


@pytest.mark.parametrize(("name", "line"), of_guides(), ids=lambda text: str(text)[:60])
def test_command(name: str, line: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr("sglang_spec.ready.EVERY", 1e9)  # do not wait for a server that is not here
    checked = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    for program, *words in parts(line):
        assert program in PROGRAMS, f"docs/{name}.md: no test runs {program}"
        PROGRAMS[program](words)


def parts(line: str) -> Iterator[list[str]]:
    """The commands of a line that are joined by `&&` or `;`, without variables set before them."""
    for part in re.split(r"\s*(?:&&|;)\s+", line):
        words = shlex.split(part, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            del words[0]
        if words[:1] == ["python3"] and words[1:2] and words[1].startswith("test/registered/"):
            continue  # a test of upstream's, in a checkout of upstream's
        if words:
            yield words


def test_every_mention_of_the_patches_commands_can_be_typed() -> None:
    found = [
        one
        for name in ("patching", "upstreaming", "install")
        for one in guide.mentions(ROOT / f"docs/{name}.md", "vendoring")
    ]
    assert len(found) > 15
    for one in found:
        words = shlex.split(one.replace("[", "").replace("]", ""))[1:]
        if words[0] == "new":  # its options have stand-ins for their values
            continue
        options = vendoring_cli._parser()
        given = [word for word in words if word.startswith("--")]
        if words[0] != "git" and not given:
            options.parse_args([words[0], *(words[1:] or needs(words[0]))])


def needs(command: str) -> list[str]:
    """What a command cannot be parsed without, where the text only names it."""
    return {"overlay": ["DIR"], "pack": ["F"], "bump": ["1"], "drop": ["x", "--why", "y"],
            "amend": ["x"], "wheel": ["DIR"]}.get(command, [])  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "sglang-spec serve recipes/none.toml",
        "sglang-spec doctor nodes --al",
        "sglang-spec smoke --prallel 3 http://x",
        "make nonsense",
        "pip install --find-link wheels",
        "docker compose -f deploy/compose/none.yaml up",
        "vendoring bumps 0.5.22",
        "sglang-spec/run-gpu.sh --sites SITE",
        "sglang-spec sweep --step 1,3",
    ],
)
def test_a_wrong_command_would_be_found(
    line: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    program, *words = shlex.split(line)
    with pytest.raises((AssertionError, click.UsageError, SystemExit)):
        PROGRAMS[program](words)


def test_the_guide_installs_the_router_that_is_pinned() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    words = "/opt/sglang-router/bin/pip", "install", *groups["router"]
    assert " ".join(words) in guide.commands(ROOT / "docs/operations.md")


def test_links_lead_somewhere() -> None:
    for name in GUIDES:
        text = (ROOT / f"docs/{name}.md").read_text()
        for part in text.split("](")[1:]:
            target = part.partition(")")[0].partition("#")[0]
            assert (ROOT / "docs" / target).exists(), f"docs/{name}.md: {target}"
