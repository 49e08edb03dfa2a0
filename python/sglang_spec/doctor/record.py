"""What a node is going to run, as a small record that other nodes' records are held against."""

from __future__ import annotations

import json
import platform
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..recipe import arguments, machine, pair
from ..recipe.sections import Recipe

FORMAT = 1
# What may differ between nodes of one launch, or says nothing of it.
_OWN_FLAGS = ("--node-rank", "--host", "--port", "--dist-init-addr", "--config")
_PACKAGES = ("torch", "sglang-kernel", "flashinfer-python", "nvidia-nccl-cu13", "transformers")


@dataclass(frozen=True)
class NodeRecord:
    """One node. `compared` holds dotted keys with the values that have to be equal everywhere."""

    format: int
    node: str
    rank: int
    nodes: int
    leader: str | None
    compared: dict[str, Any]

    def dump(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def load(cls, path: Path) -> NodeRecord:
        """The record in a file; ValueError names the file and what is wrong with it."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: cannot be read as JSON: {error}") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"{path}: no record of format {FORMAT}; write it with `doctor node`")
        try:
            record = cls(**content)
        except TypeError as error:
            raise ValueError(f"{path}: {error}; write it with `doctor node`") from error
        for key, kinds, needed in (
            ("node", (str,), "a text"),
            ("rank", (int,), "a whole number"),
            ("nodes", (int,), "a whole number"),
            ("leader", (str, type(None)), "a text or null"),
            ("compared", (dict,), "an object"),
        ):
            value = getattr(record, key)
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise ValueError(
                    f"{path}: {key} = {value!r}: {needed} is needed; write it with `doctor node`"
                )
        return record


def of_node(recipe: Recipe, facts_file: Path | None, name: str | None) -> NodeRecord:
    """The record of this node for a recipe.

    Raises:
        ValueError: facts or plan file cannot be used. ModelError: the embedded pair is not here.
    """
    recipe = arguments.resolved(recipe)
    facts = machine.load_facts(facts_file)
    compared = dict(_tree())
    compared |= {f"package {name}": _version(name) for name in _PACKAGES}
    compared["python"] = ".".join(platform.python_version_tuple()[:2])
    compared |= dict(_flags(arguments.flags(recipe)))
    compared |= {f"variable {k}": v for k, v in arguments.environment(recipe).items()}
    compared |= dict(_comm(recipe, facts, facts_file is not None))
    compared |= dict(_contract(recipe))
    nodes = recipe.nodes
    return NodeRecord(
        FORMAT, name or socket.gethostname(), nodes.rank, nodes.count, nodes.leader, compared
    )


def _tree() -> Iterator[tuple[str, Any]]:
    """Pin and patches, and the files that are not what was made of them."""
    provenance: Any = import_module("sglang_spec.hardening.provenance")
    found = provenance.read()
    yield "pin", None if found.missing else f"{found.version} (wheel {found.wheel_sha256})"
    yield "patch set", found.patch_set
    yield "changed files", list(found.changed)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _flags(made: list[str]) -> Iterator[tuple[str, Any]]:
    """Each flag with its values, but for those that are a node's own."""
    at = [index for index, word in enumerate(made) if word.startswith("--")]
    for start, end in zip(at, [*at[1:], len(made)], strict=True):
        if made[start] not in _OWN_FLAGS:
            yield f"flag {made[start]}", " ".join(made[start + 1 : end]) or True


def _comm(recipe: Recipe, facts: Any, replayed: bool) -> Iterator[tuple[str, Any]]:
    """The GPUs, what reduces, and the variables that plan and user set."""
    for key, value in facts.machine().items():
        yield f"machine {key}", value
    plan = machine.comm_plan(recipe, facts, replayed)
    if plan is None:
        return
    for choice in plan.choices:
        state = "on" if choice.on else "off"
        yield f"comm {choice.name}", f"{state} {choice.detail} {choice.limit or ''}".rstrip()
    in_effect = plan.to_set()
    for variable in plan.variables:
        if variable.by == "you" or variable.name in in_effect:
            yield f"comm variable {variable.name}", variable.value
    yield "comm refusals", [one.line for one in plan.refusals]


def _contract(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """What each slot of the draft takes, and what the contract refuses."""
    report = pair.contract(recipe)
    yield "contract", None if report is None else "accepted" if report.accepted else "refused"
    for slot in report.slots if report is not None else ():
        yield f"contract slot {slot.slot}", slot.takes
    for one in report.problems if report is not None else ():
        yield f"contract {one.code} {one.key}", repr(one.value)
