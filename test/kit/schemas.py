"""Schemas of Compose and Kubernetes, read from packages that hold them; nothing is fetched here.

pip download --no-deps -d DIR docker-compose==1.29.2 kubernetes-validate==1.37.0
SGLANG_SPEC_SCHEMAS=DIR python -m pytest test/unit/deploy
"""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "SGLANG_SPEC_SCHEMAS"
_COMPOSE = ("docker_compose-*.whl", "compose/config/compose_spec.json")
_KUBERNETES = ("kubernetes_validate-*.whl", "kubernetes_validate/kubernetes-json-schema")
KUBERNETES = "v1.37.0-local-strict"


def compose() -> dict[str, Any]:
    return _member(*_COMPOSE)


def kubernetes(kind: str) -> dict[str, Any]:
    """The schema of a kind ("core.v1.Pod"), which allows nothing unknown."""
    pattern, folder = _KUBERNETES
    found = _member(pattern, f"{folder}/{KUBERNETES}/_definitions.json")
    return {"$defs": found["$defs"], "$ref": f"#/$defs/io.k8s.api.{kind}"}


def _member(pattern: str, name: str) -> dict[str, Any]:
    """A JSON file in a wheel of that folder; the test is skipped where there is none."""
    folder = os.environ.get(VARIABLE)
    wheels = sorted(Path(folder).glob(pattern)) if folder else []
    if not wheels:
        pytest.skip(f"{VARIABLE} names no folder with {pattern}; see test/kit/schemas.py")
    with zipfile.ZipFile(wheels[-1]) as wheel:
        content: dict[str, Any] = json.loads(wheel.read(name))
        return content
