"""The servers that kits are run against: one pair, in three variants, on one device."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit import gpu_record, plain_faults
from kit.fault_table import code_hash
from kit.upstream import MARK, ROOT, kept_plain, plain_tree, site, taken_back
from sglang_spec import host
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation

PATCHED = "patched"
PLAIN = "plain"
CONTROL = "without speculation"  # plain: what fails there too is not speculation's doing
VARIANTS = (PATCHED, PLAIN, CONTROL)

STEPS, TOPK, TOKENS = 3, 1, 4


@dataclass(frozen=True)
class Setup:
    """What a server has besides the common flags."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


STRICT = {
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1",
    "SGLANG_CHECK_KV_PAGE_INVARIANTS": "1",
}
SETUPS = {
    "main": Setup(("--enable-return-hidden-states",)),
    # As upstream's fixture has it. The kit asks for 100,000 tokens in vain: it takes them back.
    "sessions": Setup(
        ("--enable-streaming-session", "--context-length", "131072"),
        {**STRICT, "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"},
    ),
    # The other kit asks for more than 512 tokens, and wants that to be refused.
    "short-sessions": Setup(
        ("--enable-streaming-session", "--context-length", "512", "--chunked-prefill-size", "4096"),
        STRICT,
    ),
    "waiting-timeout": Setup(
        ("--max-running-requests", "1"), {"SGLANG_REQ_WAITING_TIMEOUT": "0.001"}
    ),
    "running-timeout": Setup((), {"SGLANG_REQ_RUNNING_TIMEOUT": "2"}),
}


def common(backend: str) -> tuple[str, ...]:
    if host.device() == "cpu":
        return ("--max-running-requests", "32", "--max-total-tokens", "32768")
    return (
        *("--max-running-requests", "64", "--max-total-tokens", "262144"),
        # Only a bound: the variants start at the same time, and each counts the others as used.
        *("--mem-fraction-static", "0.9", "--attention-backend", backend),
        *("--chunked-prefill-size", "1024", "--cuda-graph-max-bs-decode", "64"),
    )


def launch(pair: Pair, setup: Setup, variant: str, backend: str) -> Launch:
    path = ()
    if variant != PATCHED:
        path = (("PYTHONPATH", path_of(variant)),)
    return Launch(
        pair.target,
        None if variant == CONTROL else Speculation(pair.draft, STEPS, TOPK, TOKENS),
        "bfloat16",
        (*common(backend), *setup.arguments),
        {**setup.environment, **dict(path)},
    )


def fixture(pair: Pair, backend: str) -> dict[str, Any]:
    """What upstream's fixture lets a class choose: model, draft and how it speculates."""
    return {
        "model": str(pair.target),
        "draft_model": str(pair.draft),
        "spec_algo": "EAGLE3",
        "spec_steps": STEPS,
        "spec_topk": TOPK,
        "spec_tokens": TOKENS,
        "attention_backend": backend,
        "chunked_prefill_size": 1024,
    }


def path_of(variant: str) -> str:
    """PYTHONPATH for a variant's server and for the kits that ask it."""
    before = os.environ.get("PYTHONPATH", "")
    if variant == PATCHED:
        return before
    tree = _plain_for_cpu() if variant == PLAIN and host.device() == "cpu" else _plain()
    return os.pathsep.join([str(tree), before])


def _plain_for_cpu() -> Path:
    """The plain package with the one patch without which EAGLE3 does not start on this CPU."""
    folder = ROOT / "build/plain-on-cpu" / plain_tree().name
    if not (folder / MARK).is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        plain_faults.tree(folder)
        (folder / MARK).touch()
    return folder / "tree"


def _plain() -> Path:
    """A folder with the unpatched package: of the pinned wheel, or what an overlay replaced."""
    if not kept_plain():
        return plain_tree()
    target = site().parent / "plain-site"
    if not (target / MARK).is_file():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        taken_back(target)
        (target / MARK).touch()
    return target


def code(variant: str) -> str:
    """What was tested, by hash: `patch set/own modules`, or the pinned wheel of the plain tree."""
    if variant == PATCHED:
        return code_hash()
    return str(gpu_record.stamp()["wheel_sha256"])[:12]


def versions(variant: str) -> dict[str, Any]:
    """Pin and patch set of the tree that a variant is, as its own interpreter sees it."""
    program = "import json; from kit import gpu_record; print(json.dumps(gpu_record.stamp()))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path_of(variant)},
        capture_output=True,
        text=True,
        check=True,
    )
    stamp: dict[str, Any] = json.loads(done.stdout)
    if variant == PLAIN and host.device() == "cpu":
        stamp["patches"] = [plain_faults.PATCH]
    return stamp
