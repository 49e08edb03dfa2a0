"""Our launch options beside upstream's: they come after, so no call of `ServerArgs` shifts."""

from __future__ import annotations

import argparse
import ast
import zipfile
from functools import cache

import pytest
from sglang.srt.arg_groups.field_order import POSITIONAL_FIELD_ORDER
from sglang.srt.server_args import ServerArgs
from vendoring.layout import checkout
from vendoring.pin import read_pin
from vendoring.wheel_cache import resolve_any

FIELDS: tuple[str, ...] = ServerArgs.__struct_fields__
# In the order in which upstream puts fields that its own list does not name: as declared.
OWN = (
    "speculative_rank_check",
    "speculative_verify_attention",
    "speculative_min_accept_length",
    "speculative_verify_timeout",
    "skip_speculative_self_test",
    "speculative_contract",
    "speculative_comm_plan",
    "speculative_disable_batch_threshold",
    "speculative_enable_batch_threshold",
    "speculative_threshold_dwell",
    "speculative_watch",
)
# What a command line can say for each, and what the field then holds.
SAID: dict[str, tuple[str, object]] = {
    "speculative_rank_check": ("64", 64),
    "speculative_verify_attention": ("auto", "auto"),
    "speculative_min_accept_length": ("1.5", 1.5),
    "speculative_verify_timeout": ("20", 20.0),
    "speculative_contract": ("strict", "strict"),
    "speculative_comm_plan": ("auto", "auto"),
    "speculative_disable_batch_threshold": ("32", "32"),
    "speculative_enable_batch_threshold": ("24", 24),
    "speculative_threshold_dwell": ("16", 16),
    "speculative_watch": ("counts", "counts"),
}


@cache
def released_order() -> tuple[str, ...]:
    """Upstream's list, out of the pinned wheel."""
    _, wheel = resolve_any(read_pin(checkout().pin))
    with zipfile.ZipFile(wheel) as archive:
        source = archive.read("sglang/srt/arg_groups/field_order.py")
    assigned = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    return tuple(ast.literal_eval(assigned[0].value))


def test_upstreams_list_is_untouched() -> None:
    assert released_order() == POSITIONAL_FIELD_ORDER
    assert len(released_order()) > 500


def test_our_fields_come_after_all_of_upstreams() -> None:
    assert FIELDS[: len(released_order())] == released_order()
    assert FIELDS[len(released_order()) :] == OWN


def test_what_is_given_by_position_lands_where_plain_upstream_puts_it() -> None:
    values = [object() for _ in released_order()]
    args = ServerArgs(*values)
    where = {name: getattr(args, name) for name in released_order()}
    assert where == dict(zip(released_order(), values, strict=True))
    assert all(getattr(args, name) == getattr(ServerArgs(model_path="x"), name) for name in OWN)


@pytest.mark.parametrize("name", OWN)
def test_each_is_a_field_and_a_flag(name: str) -> None:
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    flag = "--" + name.replace("_", "-")
    word, value = SAID.get(name, ("", True))
    given = ["--model-path", "x", flag, *([word] if word else [])]
    args = ServerArgs.from_cli_args(parser.parse_args(given))
    plain = ServerArgs.from_cli_args(parser.parse_args(["--model-path", "x"]))
    assert getattr(args, name) == value
    assert getattr(plain, name) == getattr(ServerArgs(model_path="x"), name) != value
    assert getattr(ServerArgs(model_path="x", **{name: value}), name) == value
