"""A CycloneDX bill of materials for a wheel: upstream wheel, patches, requirements."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any

from .distribution import Distribution
from .metadata import requirement_name
from .pin import Pin, PinnedWheel
from .series import Patch
from .wheel_cache import sha256_of

_TYPES = {"backport": "backport"}  # all others are what CycloneDX calls unofficial
_EXACT = re.compile(r"==([^,;\s]+)")


def write_sbom(
    path: Path, pin: Pin, wheel: PinnedWheel, patches: tuple[Patch, ...], about: Distribution
) -> Path:
    """Writes the bill beside the wheel at `path`. Same wheel, same bytes: it has no date in it."""
    own_hash = sha256_of(path)
    own = f"pkg:pypi/{pin.name}@{pin.local_version}"
    needed = [_requirement(entry) for entry in about.requirements if "extra ==" not in entry]
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own_hash)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": pin.name,
                "version": pin.local_version,
                "purl": own,
                "hashes": [{"alg": "SHA-256", "content": own_hash}],
                "pedigree": {
                    "ancestors": [_upstream(pin, wheel)],
                    "patches": [_patch(patch) for patch in patches],
                },
            }
        },
        "components": [_upstream(pin, wheel), *(_patch_file(patch) for patch in patches), *needed],
        "dependencies": [
            {"ref": own, "dependsOn": sorted({component["bom-ref"] for component in needed})}
        ],
    }
    target = path.with_suffix(".cdx.json")
    target.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return target


def _upstream(pin: Pin, wheel: PinnedWheel) -> dict[str, Any]:
    purl = f"pkg:pypi/{pin.name}@{pin.version}"
    return {
        "type": "library",
        "bom-ref": f"{purl}?file_name={wheel.file}",
        "name": pin.name,
        "version": pin.version,
        "purl": f"{purl}?file_name={wheel.file}",
        "hashes": [{"alg": "SHA-256", "content": wheel.sha256}],
    }


def _patch(patch: Patch) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": _TYPES.get(patch.header.category, "unofficial"),
        "diff": {"url": f"patches/{patch.slug}.patch"},
    }
    # A link may have words after it, which are for people and no part of an IRI.
    links = [bug.split()[0] for bug in patch.header.all("Bug") if bug.startswith("http")]
    if links:
        entry["resolves"] = [{"type": "defect", "name": patch.header.subject, "references": links}]
    return entry


def _patch_file(patch: Patch) -> dict[str, Any]:
    name = f"patches/{patch.slug}.patch"
    return {
        "type": "file",
        "bom-ref": name,
        "name": name,
        "description": patch.header.subject,
        "hashes": [{"alg": "SHA-256", "content": patch.sha256}],
    }


def _requirement(entry: str) -> dict[str, Any]:
    name = requirement_name(entry)
    exact = _EXACT.search(entry.split(";")[0])
    purl = f"pkg:pypi/{name}" + (f"@{exact[1]}" if exact else "")
    component = {
        "type": "library",
        "bom-ref": entry,
        "name": name,
        "purl": purl,
        "properties": [{"name": "requirement", "value": entry}],
    }
    return component | ({"version": exact[1]} if exact else {})
