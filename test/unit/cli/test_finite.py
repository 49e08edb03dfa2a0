"""No number of a command line may be `nan` or `inf`: every comparison with it would be silent."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from sglang_spec.cli import main
from sglang_spec.finite import Finite


def options(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Parameter]]:
    """Every parameter of `command` and of the commands under it, with where it is."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below, (*path, name))
        return
    for parameter in command.params:
        yield " ".join((*path, parameter.opts[0])), parameter


NUMBERS = {
    where: parameter
    for where, parameter in options(main)
    if isinstance(parameter.type, click.types.FloatParamType)
}


@pytest.mark.parametrize("where", NUMBERS)
def test_every_number_is_finite(where: str) -> None:
    assert isinstance(NUMBERS[where].type, Finite)


def test_there_are_numbers() -> None:
    assert "canary --fail-under" in NUMBERS


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_what_is_not_finite_is_a_usage_error(value: str) -> None:
    told = CliRunner().invoke(main, ["bench", "compare", __file__, __file__, "--fail-under", value])
    assert told.exit_code == 2
    assert "--fail-under" in told.stderr and value in told.stderr
