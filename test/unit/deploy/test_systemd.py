"""The unit: systemd takes it, sandboxes it, and its commands are commands of ours."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from kit.recipes import RECIPES, ROOT, facts
from sglang_spec.cli import main

UNIT = ROOT / "deploy/systemd/sglang-spec@.service"
PROGRAM = "/opt/sglang-spec/.venv/bin/sglang-spec"
NAME = "kimi-k2.5-rtx-pro-6000"
# Keys that systemd has from 254 on; the unit says what an older one does without them.
NEWER = ("RestartSteps", "RestartMaxDelaySec")
MOST_EXPOSED = 25  # tenths; systemd calls it OK below 50


def values(key: str) -> list[str]:
    lines = UNIT.read_text().splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit of one recipe, with a program that is there."""
    path = tmp_path / f"sglang-spec@{NAME}.service"
    path.write_text(UNIT.read_text().replace(PROGRAM, "/bin/true"))
    return path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    command = ["systemd-analyze", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_systemd_takes_it(installed: Path) -> None:
    done = analyze("verify", str(installed))
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if installed.name in line]
    assert [line for line in told if not any(f"'{key}'" in line for key in NEWER)] == []


def test_systemd_names_a_wrong_key(installed: Path) -> None:
    """What the test above would see."""
    text = installed.read_text().replace("[Install]", "KillMod=mixed\n[Install]")
    installed.write_text(text)
    assert "KillMod" in analyze("verify", str(installed)).stderr


def test_it_is_sandboxed(installed: Path) -> None:
    arguments = ("--offline=yes", f"--threshold={MOST_EXPOSED}", "--no-pager", str(installed))
    done = analyze("security", *arguments)
    assert done.returncode == 0, done.stdout[-200:]
    loose = ("ProtectSystem", "User", "CapabilityBoundingSet")
    lines = installed.read_text().splitlines(keepends=True)
    installed.write_text("".join(line for line in lines if not line.startswith(loose)))
    assert analyze("security", *arguments).returncode != 0


def test_it_restarts_with_growing_delays_and_drains() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    service = parser["Service"]
    assert service["Type"] == "exec" and service["User"] == "sglang"
    assert service["Restart"] == "on-failure" and int(service["RestartSteps"]) > 1
    assert service["KillMode"] == "mixed" and service["TimeoutStopSec"] == "10min"
    assert service["StandardError"] == "journal"
    assert "StartLimitBurst" in parser["Unit"]


def test_it_starts_a_recipe(tmp_path: Path) -> None:
    """ExecStart as systemd expands it, as a dry run."""
    secrets = tmp_path / "secrets.yaml"
    secrets.write_text("api-key: k\n")
    secrets.chmod(0o400)
    (line,) = values("ExecStart")
    text = line.replace("/etc/sglang-spec/recipes", str(RECIPES)).replace("%i", NAME)
    program, *words = shlex.split(text.replace("%d", str(tmp_path)))
    assert program == PROGRAM
    result = CliRunner().invoke(main, [*words, "--dry-run", "--facts", str(facts(NAME))])
    assert result.exit_code == 0, result.output
    assert f"--config {secrets}" in result.stdout and "secrets not checked" not in result.stderr


def test_it_waits_until_ready() -> None:
    (line,) = values("ExecStartPost")
    text = line.replace("/etc/sglang-spec/recipes", str(RECIPES)).replace("%i", NAME)
    program, *words = shlex.split(text.replace("%d", "/run/credentials/x"))
    assert program == PROGRAM
    seconds = float(words.pop())
    assert words.pop() == "--timeout" and seconds < 2 * 3600  # of TimeoutStartSec
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1 and "http://127.0.0.1:30000 is not ready" in result.stderr


def test_a_recipe_whose_secrets_only_the_unit_names_is_waited_for(tmp_path: Path) -> None:
    """ExecStart accepts it by its --set, so ExecStartPost must not refuse it."""
    text = (RECIPES / f"{NAME}.toml").read_text()
    lines = [line for line in text.splitlines(True) if not line.startswith(("secrets", "host"))]
    open_ = "".join(lines).replace("[listen]\n", '[listen]\nhost = "0.0.0.0"\n')
    (tmp_path / f"{NAME}.toml").write_text(open_)
    (line,) = values("ExecStartPost")
    for old, new in (("/etc/sglang-spec/recipes", str(tmp_path)), ("%i", NAME), ("%d", "/run/x")):
        line = line.replace(old, new)
    words = shlex.split(line)[1:-2]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1 and "http://127.0.0.1:30000 is not ready" in result.stderr
    at = words.index("--set")
    refused = CliRunner().invoke(main, [*words[:at], *words[at + 2 :]])
    assert refused.exit_code == 2 and "listen.secrets" in refused.stderr
