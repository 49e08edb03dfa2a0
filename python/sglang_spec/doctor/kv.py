"""`doctor kv`: what speculation costs in KV cache, on a running server or by a pair's configs."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from ..finite import Finite
from .served import NotSaid, part

GB = 2**30


class CostUnknown(Exception):
    """Nothing can be said; the text tells why and what to do."""


@click.command("kv")
@click.argument("url", required=False)
@click.option("--api-key", envvar="SGLANG_API_KEY", help="Of the server, if it asks for one.")
@click.option("--target", type=click.Path(exists=True, path_type=Path), help="Folder of a model.")
@click.option("--draft", type=click.Path(exists=True, path_type=Path), help="Folder of its draft.")
@click.option(
    "--tp-size",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Ranks that share the heads.",
)
@click.option(
    "--kv-bytes",
    default=2,
    show_default=True,
    type=click.IntRange(1),
    help="Bytes of a number in the cache.",
)
@click.option(
    "--kv-gb",
    type=Finite(0, min_open=True),
    help="Memory of both pools on one rank, in GB.",
)
@click.option("--page-size", default=1, show_default=True, type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def kv(
    url: str | None,
    api_key: str | None,
    target: Path | None,
    draft: Path | None,
    tp_size: int,
    kv_bytes: int,
    kv_gb: float | None,
    page_size: int,
    as_json: bool,
) -> None:
    """Say how many tokens of KV there are with and without speculation, what takes them, and how
    many requests run at once and why no more.

    URL is a running server. --target and --draft: what to expect of a pair that is not running,
    for each GB of KV or for --kv-gb. Exit code 0: fine, 1: nothing can be said, 2: wrong usage.

    \b
    Examples: sglang-spec doctor kv http://127.0.0.1:30000
              sglang-spec doctor kv --target ./Kimi-K2.5 --draft ./kimi-k2.5-eagle3 --tp-size 8
    """
    if (url is None) == (target is None) or (target is None) != (draft is None):
        raise click.UsageError("give the URL of a server, or --target and --draft")
    try:
        if url is not None:
            replicas = of_server(url, api_key)
            lines = [line for found in replicas for line in told(found)]
            told_json: Any = replicas
        else:
            assert target is not None and draft is not None
            told_json = of_pair(target, draft, tp_size, kv_bytes, kv_gb or 1.0, page_size)
            lines = expected(told_json)
    except CostUnknown as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    click.echo(json.dumps(told_json, indent=2) if as_json else "\n".join(lines))


def of_server(url: str, api_key: str | None = None) -> list[dict[str, Any]]:
    """What each replica says of itself.

    Raises:
        CostUnknown: no answer, or a server without speculation.
    """
    why_not = (
        "says nothing of its KV cache: it was started without speculation, or is not this "
        "project's SGLang"
    )
    try:
        return part(url, "kv_cost", why_not, api_key)
    except NotSaid as error:
        raise CostUnknown(str(error)) from error


def of_pair(
    target: Path, draft: Path, ranks: int, item: int, gigabytes: float, page: int
) -> dict[str, Any]:
    """What to expect of a pair, by its configs; sizes are of one rank.

    Raises:
        CostUnknown: a config that cannot be read, or KV that is not attention's or MLA's.
    """
    capacity: Any = import_module("sglang_spec.hardening.kv.capacity")
    try:
        cost = capacity.cost(_config(target), _config(draft), ranks, item)
    except (capacity.CapacityUnknown, KeyError) as error:
        raise CostUnknown(f"{target}, {draft}: {error}") from error
    budget = int(gigabytes * GB)
    tokens = cost.tokens(budget, page)
    return {
        "gigabytes": gigabytes,
        "tokens": tokens,
        "tokens_without_speculation": cost.without(budget, page),
        "bytes_per_token": {
            "target": cost.target,
            "draft": cost.draft,
            "draft_as_upstream_budgets": cost.budgeted,
        },
        "pools_gb": round(cost.taken(tokens, page) / GB, 3),
    }


def _config(folder: Path) -> dict[str, Any]:
    """The config of a model; CostUnknown if there is none that can be read."""
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CostUnknown(f"{file}: {error}; give the folder of a model") from error
    if not isinstance(config, dict):
        raise CostUnknown(f"{file}: {config!r} is no config; write it as a JSON object")
    return config


def told(found: dict[str, Any]) -> list[str]:
    """A server's answer as lines."""
    each, pools, cap = found["bytes_per_token"], found["pools_gb"], found["running_requests"]
    lines = [
        f"{found['tokens']} tokens of KV, sized by {found['sized_by']}; without speculation about "
        f"{found['tokens_without_speculation']}",
        f"target pool {pools['target']} GB, {each['target']} bytes a token",
        f"draft pool {pools['draft']} GB, {each['draft']} bytes a token; the draft's weights "
        f"{found['draft_weights_gb']} GB",
    ]
    if reserve := found.get("reserve"):
        lines.append(
            f"each running request holds at most {reserve['slots_per_request']} slots past its "
            f"tokens: {reserve['draft_tokens']} of a verify, {reserve['unknown_tokens']} that may "
            "be accepted unseen, whole pages"
        )
    lines += [f"{name}: {gb} GB" for name, gb in found["states_gb"].items()]
    lines += [
        f"of these the adaptive state of {steps} steps: {gb} GB"
        for steps, gb in found["adaptive_states_gb"].items()
    ]
    lines.append(f"at most {cap['cap']} requests run at once: {cap['reason']}")
    return lines


def expected(found: dict[str, Any]) -> list[str]:
    """What is expected of a pair as lines."""
    each = found["bytes_per_token"]
    lines = [
        f"{found['gigabytes']:g} GB hold {found['tokens']} tokens with speculation, "
        f"{found['tokens_without_speculation']} without",
        f"a token takes {each['target']} bytes in the target's pool, {each['draft']} in the "
        "draft's, on each rank",
    ]
    if each["draft"] != each["draft_as_upstream_budgets"]:
        lines.append(
            f"SGLang budgets {each['draft_as_upstream_budgets']} for the draft: the pools take "
            f"{found['pools_gb']} GB, leave room for the difference (--mem-fraction-static)"
        )
    return lines
