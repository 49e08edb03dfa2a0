"""`doctor node` and `doctor nodes`: do the nodes of a launch agree, before they try to meet?"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..models import ModelError
from ..recipe.problem import RecipeError
from ..recipe.read import load
from .record import NodeRecord, of_node


@dataclass(frozen=True)
class Difference:
    """A key, and which nodes say what: `said` has the value of most nodes first."""

    key: str
    said: tuple[tuple[Any, tuple[str, ...]], ...]

    def __str__(self) -> str:
        first, *rest = (f"{', '.join(nodes)}: {_shown(value)}" for value, nodes in self.said)
        return f"{self.key}: {'; '.join(rest)}; but {first}"


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), help="Write the record here.")
@click.option("--facts", type=click.Path(path_type=Path), help="Replay these facts of a machine.")
@click.option("--set", "changes", multiple=True, help="SECTION.KEY=VALUE over the recipe's.")
@click.option("--name", help="Name of this node.  [default: the host's]")
def node(
    recipe: Path,
    output: Path | None,
    facts: Path | None,
    changes: tuple[str, ...],
    name: str | None,
) -> None:
    """Write down what this node is going to run: pin, patch set, flags, plan, contract.

    Nothing is started and no secret is written. Exit code 0: written, 1: the recipe is refused.

    \b
    Example: sglang-spec doctor node recipes/kimi-k2.5-h200.toml --output node-0.json
    """
    try:
        record = of_node(load(recipe, changes), facts, name)
    except (RecipeError, ModelError, ValueError) as error:
        click.echo(f"refused: {error}", err=True)
        sys.exit(1)
    if output is None:
        click.echo(record.dump(), nl=False)
        return
    try:
        output.write_text(record.dump(), encoding="utf-8")
    except OSError as error:
        text = f"{output}: {error.strerror}; name a file in a folder that is there"
        raise click.BadParameter(text, param_hint="--output") from error


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def nodes(files: tuple[Path, ...], as_json: bool) -> None:
    """Hold the records of all nodes of a launch against each other, and say who differs.

    Exit code 0: they agree, 1: they do not, 2: wrong usage.

    \b
    Example: sglang-spec doctor nodes node-0.json node-1.json
    """
    try:
        records = [NodeRecord.load(path) for path in files]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    group = problems_of_group(records)
    found = differences(records)
    if as_json:
        told = [{"key": one.key, "said": [list(pair) for pair in one.said]} for one in found]
        click.echo(json.dumps({"differences": told, "group": group}, indent=2))
    else:
        for text in [*group, *map(str, found)]:
            click.echo(text)
        if not group and not found:
            names = ", ".join(one.node for one in records)
            click.echo(f"{names} agree in {len(records[0].compared)} points")
    sys.exit(1 if group or found else 0)


def differences(records: Sequence[NodeRecord]) -> list[Difference]:
    """Every compared key that not all nodes say alike; one that a node lacks counts as none."""
    found = []
    for key in sorted({key for one in records for key in one.compared}):
        said: dict[str, list[NodeRecord]] = {}
        for one in records:
            said.setdefault(json.dumps(one.compared.get(key)), []).append(one)
        if len(said) > 1:
            # Most nodes first; where as many say the one as the other, the leader is right.
            groups = sorted(said.values(), key=lambda ones: (-len(ones), min(o.rank for o in ones)))
            pairs = ((ones[0].compared.get(key), tuple(o.node for o in ones)) for ones in groups)
            found.append(Difference(key, tuple(pairs)))
    return found


def problems_of_group(records: Sequence[NodeRecord]) -> list[str]:
    """What keeps these nodes from being one group whatever they run."""
    found = []
    counts = sorted({one.nodes for one in records})
    if counts != [len(records)]:
        said = " and ".join(map(str, counts))
        found.append(f"records of {len(records)} nodes, and the recipe is for {said}")
    ranks: dict[int, list[str]] = {}
    for one in records:
        ranks.setdefault(one.rank, []).append(one.node)
    for rank, names in sorted(ranks.items()):
        if len(names) > 1:
            found.append(f"rank {rank} is claimed by {', '.join(names)}; give each its nodes.rank")
    if len({one.leader for one in records}) > 1:
        said = "; ".join(f"{one.node}: {one.leader}" for one in records)
        found.append(f"they would meet at different places: {said}")
    return found


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return "nothing" if value is None else text
