"""No key of a server is in what it shows of its arguments: in the log, in `/server_info`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sglang.srt.entrypoints.engine import Engine, _server_args_for_logging
from sglang.srt.server_args import ServerArgs, prepare_server_args
from sglang.srt.spec_hardening import masking
from sglang.srt.utils.common import build_server_info
from sglang_spec.models import tiny_pair

SECRET = "kept-to-ourselves"
FLAGS = ("--api-key", "--admin-api-key", "--ssl-keyfile-password")


def launched(*flags: str) -> ServerArgs:
    target = str(tiny_pair().target)
    return prepare_server_args(["--model-path", target, "--device", "cpu", *flags])


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("joined", [False, True])
def test_a_secret_is_not_shown(flag: str, joined: bool) -> None:
    words = [f"{flag}={SECRET}"] if joined else [flag, SECRET]
    arguments = launched(*words)
    field = flag.removeprefix("--").replace("-", "_")
    assert getattr(arguments, field) == SECRET  # the server itself has it
    for shown in (_server_args_for_logging(arguments), build_server_info(arguments, {})):
        assert shown[field] == masking.MASK
        assert SECRET not in json.dumps(shown, default=str)
    assert flag in str(arguments.launch_command)


def test_an_abbreviated_flag_is_masked_too() -> None:
    """argparse takes any prefix that is the only one."""
    arguments = launched("--admin-api", SECRET, "--api-k", SECRET)
    assert arguments.api_key == arguments.admin_api_key == SECRET
    assert SECRET not in str(arguments.launch_command)


def test_what_was_not_given_is_shown_as_that() -> None:
    shown = build_server_info(launched(), {})
    assert shown["api_key"] is None and shown["admin_api_key"] is None
    assert masking.MASK not in json.dumps(shown, default=str)


def test_a_secret_from_a_file_is_masked_too(tmp_path: Path) -> None:
    """The file's lines become words of the command line."""
    file = tmp_path / "secrets.yaml"
    file.write_text(f"api-key: {SECRET}\n")
    arguments = launched("--config", str(file))
    assert arguments.api_key == SECRET
    assert SECRET not in json.dumps(build_server_info(arguments, {}), default=str)


def test_an_engine_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its call is kept as its command line, before anything is started."""
    seen: list[ServerArgs] = []

    def launch(*args: Any, server_args: ServerArgs, **kwargs: Any) -> None:
        seen.append(server_args)
        raise Launched

    monkeypatch.setattr(Engine, "_launch_subprocesses", launch)
    monkeypatch.setattr("atexit.register", lambda function: None)  # it ends all of our children
    with pytest.raises(Launched):
        Engine(model_path=str(tiny_pair().target), device="cpu", api_key=SECRET)
    assert seen[0].api_key == SECRET
    assert f"api_key='{masking.MASK}'" in str(seen[0].launch_command)


class Launched(Exception):
    """Raised where processes would be started."""
