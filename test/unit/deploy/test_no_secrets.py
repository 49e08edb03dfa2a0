"""Nothing that is deployed or served from this repository holds a secret."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from kit.recipes import ROOT

ASSIGNED = re.compile(
    r"(?i)(api[-_]?key|password|passwd|token|secret)[\"']?[ \t]*[:=][ \t]*[\"']?([^\s\"']+)"
)
HARMLESS = re.compile(r"^(…|/|\.|\$|\[|\d+$|true|false|listen\.|%d|secrets\.yaml)")


def found(text: str) -> list[str]:
    return [one[0] for one in ASSIGNED.finditer(text) if not HARMLESS.match(one[2])]


def files() -> list[Path]:
    names = ["deploy", "recipes"]
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", *names]
    done = subprocess.run(command, capture_output=True, text=True)
    return [ROOT / name for name in done.stdout.split()]


def test_none_is_there() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout: git does not say which files are the project's")
    assert files()
    text = {path: found(path.read_text(encoding="utf-8")) for path in files()}
    assert {path: one for path, one in text.items() if one} == {}


def test_one_would_be_found() -> None:
    assert found("api-key: sk-12345") and found('GF_ADMIN_PASSWORD = "hunter2"')
    assert not found("GF_SECURITY_ADMIN_PASSWORD__FILE: /run/secrets/grafana")
