"""What is read of the server's flags without its modules is what its own parser takes."""

from __future__ import annotations

import argparse

import pytest
from sglang_spec.recipe.server_flags import PLUGIN_FLAGS, Flag, server_flags


@pytest.fixture(scope="module")
def actions() -> dict[str, argparse.Action]:
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    found = {flag: action for action in parser._actions for flag in action.option_strings}
    # Another test of this process may have loaded the plugins.
    return {flag: action for flag, action in found.items() if flag not in OF_PLUGINS}


OF_PLUGINS = {name for flag in PLUGIN_FLAGS for name in flag.names}
DECLARED = {name: flag for name, flag in server_flags().items() if name not in OF_PLUGINS}


def test_the_same_spellings(actions: dict[str, argparse.Action]) -> None:
    assert set(DECLARED) == set(actions) - {"-h", "--help"}
    for name, flag in DECLARED.items():
        assert name in flag.names and set(flag.names) == set(actions[name].option_strings)


def test_values_and_switches(actions: dict[str, argparse.Action]) -> None:
    for name, flag in DECLARED.items():
        action = actions[name]
        if flag.choices is not None:
            assert action.choices is not None, name
            assert set(flag.choices) == set(map(str, action.choices)), name
        if flag.number is not None:
            assert action.type is flag.number, name
        if flag.switch:
            assert action.nargs == 0, name


def test_few_are_not_known(actions: dict[str, argparse.Action]) -> None:
    """Where nothing is read, nothing is refused: that must stay the exception."""

    def unread(flag: Flag, action: argparse.Action) -> bool:
        return (
            (action.choices is not None and flag.choices is None)
            or (action.type in (int, float) and not action.nargs and flag.number is None)
            or (action.nargs == 0 and not flag.switch)
        )

    missed = {flag.names[0] for name, flag in DECLARED.items() if unread(flag, actions[name])}
    assert len(missed) <= 8, missed
    assert not missed & {"--attention-backend", "--kv-cache-dtype", "--quantization", "--dtype"}


def test_the_flags_of_the_plugin_that_comes_with_the_engine() -> None:
    plugin = pytest.importorskip("smg_grpc_servicer.sglang.plugin")
    parser = argparse.ArgumentParser()
    plugin.add_servicer_impl_argument(parser)
    plugin.add_metrics_arguments(parser)
    assert set(parser._option_string_actions) - {"-h", "--help"} == OF_PLUGINS
