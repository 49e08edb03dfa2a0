"""Secrets of command lines stay out of the files of a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from sglang_spec.bench import corpus, mask, mode, subject
from sglang_spec.bench.cells import grid
from sglang_spec.canary.command import canary
from sglang_spec.models import Pair


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("--api-key s3cret --tp 2", "--api-key *** --tp 2"),
        ("--api-key=s3cret --tp 2", "--api-key=*** --tp 2"),
        ("--admin_api_key s3cret", "--admin_api_key ***"),
        ("--hf-token s3cret", "--hf-token ***"),
        ("--ssl-keyfile-password=s3cret", "--ssl-keyfile-password=***"),
        ("--Client-Secret s3cret x", "--Client-Secret *** x"),
        ("--key-flag --tp 2", "--key-flag --tp 2"),
        ("--max-total-tokens 9 --max-prefill-tokens=9", None),
        ("--kt-max-deferred-experts-per-token 2", None),
        ("--model tokens --token-list 3", None),
    ],
)
def test_only_secrets_are_masked(given: str, told: str | None) -> None:
    told = told or given
    assert mask.words(given.split()) == told.split()
    assert mask.text(given) == told
    assert mask.words(["canary", given, "--api-key"]) == ["canary", told, "--api-key"]


def test_a_quoted_value_is_masked_whole() -> None:
    assert mask.text("none --api-key 's3 cret' --tp 2") == "none --api-key *** --tp 2"
    assert mask.words(["--api-key", "s3 cret"]) == ["--api-key", "***"]
    assert mask.words(["--api-key=s3 cret", "x"]) == ["--api-key=***", "x"]
    assert mask.text("none --api-key='s3 cret' --tp 2") == "none --api-key=*** --tp 2"


def test_a_variable_is_masked_by_its_name() -> None:
    assert mask.variable("HF_TOKEN", "s3cret") == "HF_TOKEN=***"
    assert mask.variable("OMP_NUM_THREADS", "1") == "OMP_NUM_THREADS=1"


def test_neither_header_nor_side_of_a_run_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = ("--api-key", "s3cret", "--log-level", "warning")
    monkeypatch.setattr(sys, "argv", ["sglang-spec", "bench", "--", *extra])
    tested = subject.Subject("own", Pair(Path("t"), Path("d")), corpus.of_tiny())
    made = subject.settings(tested, grid([64], [1], [], 1, 8), 8, extra, "auto")
    (side,) = subject.of_modes([mode.STATIC], made)
    header = subject.header(tested, {"launches": {side.name: side.settings()}})
    text = json.dumps([header, side.settings(), side.flags])
    assert "s3cret" not in text and text.count("--api-key") == 3
    assert header["argv"][-2:] == ["--log-level", "warning"]
    assert side.launch is not None and "s3cret" in side.launch.command(0)  # the server gets it


def test_nor_what_a_canary_shows() -> None:
    arguments = ["", "none --api-key s3cret", "--pair", "tiny", "--dry-run", "--json"]
    done = CliRunner().invoke(canary, arguments)
    assert done.exit_code == 0 and "s3cret" not in done.output and "***" in done.output
