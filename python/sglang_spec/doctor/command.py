"""The `doctor` group. Bare, it tells of the tree; each section is a command of its own module."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib import import_module
from typing import Any

import click

from ..comm.doctor import comm
from .capture import capture
from .kv import kv
from .nodes import node, nodes
from .threshold import threshold


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print the provenance as JSON.")
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Say which SGLang this is: pin, patch-set hash, and whether its files still are those made.

    Exit code 0: as it was made, 1: no stamp, or files that differ from it, 2: wrong usage.

    \b
    Example: sglang-spec doctor
    """
    if context.invoked_subcommand is not None:
        return
    provenance: Any = import_module("sglang_spec.hardening.provenance")
    found = provenance.read()
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        click.echo(provenance.log_line(found))
        click.echo(
            f"pin {found.version or 'unknown'}, wheel sha256 {found.wheel_sha256 or 'unknown'}"
        )
        for name in found.differs:
            click.echo(f"differs from the stamp: {name}")
        for slug in found.patches:
            click.echo(f"  {slug}")
    sys.exit(1 if found.missing or found.differs else 0)


doctor.add_command(comm)
doctor.add_command(capture)
doctor.add_command(node)
doctor.add_command(nodes)
doctor.add_command(kv)
doctor.add_command(threshold)
