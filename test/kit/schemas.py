"""Schemas of Compose and Kubernetes, and Grafana's model of a dashboard, read from packages that
hold them; nothing is fetched here.

pip download --no-deps -d DIR docker-compose==1.29.2 kubernetes-validate==1.37.0 \\
    'grafana-foundation-sdk==1769699998!10.1.0'
SGLANG_SPEC_SCHEMAS=DIR python -m pytest test/unit/deploy test/unit/watch
"""

from __future__ import annotations

import json
import os
import sys
import zipfile
from importlib import import_module
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


def through_grafana(dashboard: dict[str, Any]) -> Any:
    """What Grafana's own model of a dashboard, of its panels and queries keeps of this one."""
    wheel = str(_wheel("grafana_foundation_sdk-*.whl"))
    if wheel not in sys.path:
        sys.path.append(wheel)  # a wheel of Python files alone is imported as it is
    sdk = "grafana_foundation_sdk"
    import_module(f"{sdk}.cog.plugins").register_default_plugins()
    read = import_module(f"{sdk}.models.dashboard").Dashboard.from_json(dashboard)
    return json.loads(import_module(f"{sdk}.cog.encoder").JSONEncoder().encode(read))


def _wheel(pattern: str) -> Path:
    """A wheel of that folder; the test is skipped where there is none."""
    folder = os.environ.get(VARIABLE)
    wheels = sorted(Path(folder).glob(pattern)) if folder else []
    if not wheels:
        pytest.skip(f"{VARIABLE} names no folder with {pattern}; see test/kit/schemas.py")
    return wheels[-1]


def _member(pattern: str, name: str) -> dict[str, Any]:
    with zipfile.ZipFile(_wheel(pattern)) as wheel:
        content: dict[str, Any] = json.loads(wheel.read(name))
        return content
