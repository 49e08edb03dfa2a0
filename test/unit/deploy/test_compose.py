"""The compose file: its schema, its command, what it publishes, what Grafana is given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from kit import schemas
from kit.recipes import RECIPES, ROOT, facts
from sglang_spec.cli import main

FOLDER = ROOT / "deploy/compose"
NAME = "kimi-k2.5-h200"
SETTINGS = {"RECIPE": NAME, "MODELS": "/srv/models"}
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def expanded(text: str, settings: dict[str, str]) -> str:
    """`${NAME}`, `${NAME:-default}`, `${NAME:?message}` as compose replaces them."""

    def value(found: re.Match[str]) -> str:
        name, kind, rest = found.groups()
        if name in settings:
            return settings[name]
        assert kind == "-", f"{name} has to be given: {rest}"
        return str(rest)

    return _VARIABLE.sub(value, text)


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load(expanded((FOLDER / "compose.yaml").read_text(), SETTINGS))


def test_schema(compose: Any) -> None:
    schema = schemas.compose()
    judge = jsonschema.Draft7Validator(schema)  # its own words for a draft are not those known
    judge.validate(compose)
    assert not judge.is_valid({**compose, "servces": {}})


def test_what_has_to_be_given_is_named() -> None:
    with pytest.raises(AssertionError, match="RECIPE has to be given"):
        expanded((FOLDER / "compose.yaml").read_text(), {})


def test_the_command_serves_a_recipe(compose: Any) -> None:
    words = [word.replace("/opt/sglang-spec/recipes", str(RECIPES)) for word in command(compose)]
    result = CliRunner().invoke(main, [*words, "--dry-run", "--facts", str(facts(NAME))])
    assert result.exit_code == 0, result.output
    assert "--config /run/secrets/secrets.yaml" in result.stdout
    assert "--host 0.0.0.0" in result.stdout and "--enable-metrics" in result.stdout


def command(compose: Any) -> list[str]:
    words: list[str] = compose["services"]["sglang"]["command"]
    return words


def test_secrets_come_from_files_that_git_does_not_know(compose: Any) -> None:
    assert {one["file"] for one in compose["secrets"].values()} == {
        "./secrets/secrets.yaml",
        "./secrets/grafana",
    }
    assert "/deploy/compose/secrets/" in (ROOT / ".gitignore").read_text()
    (given,) = compose["services"]["sglang"]["secrets"]
    assert f"/run/secrets/{given['target']}" in " ".join(command(compose))


def test_only_this_host_is_published_to_and_nothing_is_privileged(compose: Any) -> None:
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert service["cap_drop"] == ["ALL"] and not service.get("privileged")
        assert service["security_opt"] == ["no-new-privileges:true"]
    for name in ("prometheus", "grafana"):
        assert re.search(r":v?\d", compose["services"][name]["image"])


def test_health_is_the_ready_command(compose: Any) -> None:
    check = compose["services"]["sglang"]["healthcheck"]["test"]
    assert check[:2] == ["CMD", "sglang-spec"]
    result = CliRunner().invoke(main, check[2:])
    assert result.exit_code == 1 and "is not ready" in result.stderr


def test_every_file_that_is_mounted_is_here(compose: Any) -> None:
    mounts = [
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service["volumes"]
    ]
    own = [mount for mount in mounts if mount.startswith(".")]
    assert own and all((FOLDER / mount).exists() for mount in own)


def test_prometheus_asks_the_server(compose: Any) -> None:
    (job,) = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    assert host in compose["services"] and f"listen.port={port}" in command(compose)


def test_grafana_finds_prometheus_and_the_dashboards(compose: Any) -> None:
    folder = ROOT / "deploy/grafana/provisioning"
    (source,) = yaml.safe_load((folder / "datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090" and "prometheus" in compose["services"]
    content = yaml.safe_load((folder / "dashboards/sglang-spec.yaml").read_text())
    path = content["providers"][0]["options"]["path"]
    mounts = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
    assert mounts["../grafana"] == path
    assert Path(FOLDER, "../grafana").resolve() == folder.parent


def test_prometheus_puts_the_colon_back() -> None:
    """The rule of deploy/grafana, without which alerts and recipes find nothing."""
    (job,) = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["scrape_configs"]
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "deploy/grafana/README.md").read_text(),
                         re.DOTALL)[:1]  # fmt: skip
    (documented,) = yaml.safe_load(text)["scrape_configs"]
    rules = job["metric_relabel_configs"]
    assert rules == documented["metric_relabel_configs"]
    (rule,) = rules
    found = re.fullmatch(rule["regex"], "sglang_spec_state")
    assert found and rule["replacement"].replace("$1", found[1]) == "sglang:spec_state"
