"""From a recipe to the server's command line and environment, in the order of the sections."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ..host import CPU_ENVIRONMENT
from ..models import embedded_pair
from .keys import key_of
from .sections import EMBEDDED, OFF, SECTIONS, Recipe

# Keys of a launch with one node that would only repeat SGLang's own defaults.
_ONE_NODE = ("--nnodes", "--node-rank", "--dist-init-addr")


def flags(recipe: Recipe) -> list[str]:
    """The flags of the server, without its program."""
    found: list[str] = []
    for name in SECTIONS:
        section = getattr(recipe, name)
        if section is None or name == "extra":
            continue
        if name == "hierarchical_cache":
            found.append("--enable-hierarchical-cache")
        for one in fields(section):
            flag, value = key_of(one).flag, getattr(section, one.name)
            if flag and value is not None:
                found += _written(recipe, flag, value)
    if recipe.model.device == "cpu":
        found += ["--device", "cpu"]
    return [*found, *recipe.extra.flags]


def _written(recipe: Recipe, flag: str, value: Any) -> list[str]:
    """One flag with its value; nothing for a switch that is off."""
    if isinstance(value, bool):
        return [flag] if value else []
    if flag in _ONE_NODE and recipe.nodes.count == 1:
        return []
    if flag == "--flashinfer-allreduce-fusion-backend" and value == OFF:
        return ["--enforce-disable-flashinfer-allreduce-fusion"]
    return [flag, str(value)]


def command(recipe: Recipe) -> list[str]:
    """What is run: this interpreter, the server, its flags."""
    return [sys.executable, "-m", "sglang.launch_server", *flags(recipe)]


def environment(recipe: Recipe) -> dict[str, str]:
    """What the recipe adds to the environment of the server."""
    cpu = dict(CPU_ENVIRONMENT) if recipe.model.device == "cpu" else {}
    return cpu | recipe.extra.environment


def resolved(recipe: Recipe) -> Recipe:
    """The recipe with the folders of the embedded pair in place of its name.

    Raises:
        ModelError: the pair is asked for and cannot be made here.
    """
    if recipe.model.path != EMBEDDED:
        return recipe
    pair = embedded_pair()
    draft = None if recipe.draft is None else replace(recipe.draft, path=str(pair.draft))
    return replace(recipe, model=replace(recipe.model, path=str(pair.target)), draft=draft)


def shell(command: list[str], environment: Mapping[str, str]) -> str:
    """The launch as a person types it: variables first, a flag and its value on each line."""
    lines = [" ".join([*(f"{name}={shlex.quote(v)}" for name, v in environment.items())])]
    lines = [line for line in lines if line]
    lines.append(shlex.join(command[:3]))
    for word in command[3:]:
        if word.startswith("--"):
            lines.append(f"  {shlex.quote(word)}")
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return " \\\n".join(lines)
