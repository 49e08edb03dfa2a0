"""Runs prompts through the real engine and lets it write what it captures. Resumable.

The engine is started by this tool, captures without a draft, and writes each prompt's states itself
(`sglang.srt.spec_hardening.capture_writer`); this side sends prompts, a bounded number at a time,
and notes a sample only when its file is there. A second run with the same folder does the rest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import process
from ..server import Launch, Server, Spawn
from .dump import FORMAT, MANIFEST, SAMPLES
from .prompts import Prompt
from .send import ExtractError, Progress, Recorder, send_all

VARIABLE = "SGLANG_SPEC_CAPTURE"


@dataclass(frozen=True)
class Plan:
    """What to capture of which target.

    Attributes:
        slots: (what it takes, loop index) of each slot, in order.
        architecture, layers, hidden_size: of the target's config.
    """

    model: Path
    architecture: str
    layers: int
    hidden_size: int
    slots: tuple[tuple[str, int], ...]

    @property
    def loops(self) -> list[int]:
        return [loop for _, loop in self.slots]

    def manifest(self, arguments: Sequence[str]) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "target": self.model.name,
            "architecture": self.architecture,
            "layers": self.layers,
            "hidden_size": self.hidden_size,
            "slots": [
                {"slot": place, "takes": takes, "loop_index": loop}
                for place, (takes, loop) in enumerate(self.slots)
            ],
            "last_hidden_states": "after the final norm",
            "server_arguments": list(arguments),
        }


def plan(target: Path, draft: Path | None, loops: Sequence[int] | None) -> Plan:
    """The slots of a dump: those of a draft by its contract, given loop indices, or every layer.

    Raises:
        ExtractError: the draft does not fit, or the target cannot capture these layers.
    """
    contract: Any = import_module("sglang_spec.hardening.contract")
    families: Any = import_module("sglang_spec.hardening.contract.families")
    slots: Any = import_module("sglang_spec.hardening.contract.slots")
    checkpoint: Any = import_module("sglang_spec.hardening.contract.checkpoint")
    report: Any = import_module("sglang_spec.hardening.contract.report")
    shapes: Any = import_module("sglang_spec.hardening.contract.shapes")
    findings = report.Findings()
    config = checkpoint.read_config(target, findings)
    if config is not None:
        shapes.check_target(config, findings)
    told = findings.report()
    if config is None or not told.accepted or config.integer("hidden_size") is None:
        raise ExtractError(told.strict().error_text())
    family = families.FAMILIES.get(config.architecture)
    if family is None:
        raise ExtractError(f"{config.architecture} cannot capture layers for EAGLE3")
    if draft is not None:
        settings = contract.Settings(allow_longer_context=True)
        checked = contract.check_pair(target, draft, settings)
        if not checked.accepted:
            raise ExtractError(checked.error_text())
        loops = [slot.loop_index for slot in checked.slots]
    last = config.layers if family.last_layer else config.layers - 1
    loops = list(range(last + 1)) if loops is None else list(loops)
    if loops != sorted(set(loops)) or not loops or loops[0] < 0 or loops[-1] > last:
        raise ExtractError(
            f"loop indices {loops}: give each once, in increasing order, from 0 (the embedding) to "
            f"{last} (the {slots.takes(last)})"
        )
    return Plan(
        target,
        config.architecture,
        config.layers,
        config.integer("hidden_size"),
        tuple((slots.takes(loop), loop) for loop in loops),
    )


def launch(chosen: Plan, folder: Path, arguments: Sequence[str], dtype: str) -> Launch:
    """A server that captures for this dump. No prefix is reused: every position is computed."""
    settings = {"folder": str(folder.resolve()), "loop_indices": chosen.loops}
    return Launch(
        chosen.model,
        dtype=dtype,
        arguments=[
            *("--speculative-algorithm", "EAGLE3", "--enable-return-aux-hidden-states"),
            "--disable-radix-cache",
            "--skip-server-warmup",
            *arguments,
        ],
        environment={VARIABLE: json.dumps(settings)},
    )


def extract(
    chosen: Plan,
    prompts: Iterable[Prompt],
    folder: Path,
    arguments: Sequence[str] = (),
    dtype: str = "bfloat16",
    progress: Progress | None = None,
    spawn: Spawn = process.spawn,
) -> Progress:
    """Capture every prompt that the dump does not hold yet.

    Raises:
        ExtractError: the folder holds a dump of something else, or a sample was not written.
        ServerError: the engine did not start.
    """
    progress = progress or Progress()
    done = _resume(chosen, folder, arguments)
    settings = launch(chosen, folder, arguments, dtype)
    log = folder / "server.log"
    with Server(settings, log, spawn=spawn) as server:
        server.wait_ready(1800)
        progress.began = time.perf_counter()
        with Recorder(folder, progress) as recorder:
            send_all(server.url, folder, prompts, done, recorder)
    return progress


def _resume(chosen: Plan, folder: Path, arguments: Sequence[str]) -> set[int]:
    """The samples that are there already; writes the manifest of a new dump."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest, path = chosen.manifest(arguments), folder / MANIFEST
    if not path.exists():
        path.write_text(json.dumps(manifest, indent=1) + "\n")
        return set()
    held = json.loads(path.read_text())
    for key in ("format", "architecture", "layers", "hidden_size", "slots"):
        if held.get(key) != manifest[key]:
            raise ExtractError(
                f"{path}: {key} is {held.get(key)!r}, this run would capture {manifest[key]!r}; "
                "choose another folder"
            )
    listed = folder / SAMPLES
    lines = listed.read_text().splitlines() if listed.exists() else []
    entries = [json.loads(line) for line in lines if line.endswith("}")]
    kept = [entry for entry in entries if (folder / entry["file"]).is_file()]
    if len(kept) != len(lines):
        listed.write_text("".join(json.dumps(entry) + "\n" for entry in kept))
    return {int(entry["id"]) for entry in kept}
