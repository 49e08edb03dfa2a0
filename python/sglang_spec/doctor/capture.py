"""`doctor capture`: which layers a draft is given, by a running server or by a pair's contract."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import click
import httpx


class CaptureUnknown(Exception):
    """Nothing can be said; the text tells why and what to do."""


@click.command()
@click.argument("url", required=False)
@click.option("--api-key", envvar="SGLANG_API_KEY", help="Of the server, if it asks for one.")
@click.option("--target", help="Folder or cached hub id, to ask the contract.")
@click.option("--draft", help="Folder or cached hub id, to ask the contract.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def capture(
    url: str | None, api_key: str | None, target: str | None, draft: str | None, as_json: bool
) -> None:
    """Name the layer that each slot of the draft's fc is given, the width of fc, and how the ids
    were read.

    URL is a running server: what its target really captures. --target and --draft: what the
    contract says of a pair that is not running. With both, they are held against each other.
    Exit code 0: fine, 1: a finding, 2: wrong usage.

    \b
    Examples: sglang-spec doctor capture http://127.0.0.1:30000
              sglang-spec doctor capture --target ./Kimi-K2.5 --draft ./kimi-k2.5-eagle3
    """
    if (target is None) != (draft is None) or (url is None and target is None):
        raise click.UsageError("give the URL of a server, or --target and --draft, or all three")
    told: dict[str, Any] = {}
    try:
        if url is not None:
            told["server"] = of_server(url, api_key)
        if target is not None and draft is not None:
            told["contract"] = of_pair(target, draft)
    except CaptureUnknown as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    differs = difference(told)
    if as_json:
        click.echo(json.dumps(told | {"difference": differs}, indent=2))
    else:
        for source, found in told.items():
            _print(f"{source} {url}" if source == "server" else source, found)
        if differs:
            click.echo(f"finding: {differs}", err=True)
    sys.exit(1 if differs else 0)


def of_server(url: str, api_key: str | None = None) -> dict[str, Any]:
    """What a server says that its target captures; every replica says the same.

    Raises:
        CaptureUnknown: no answer, no EAGLE3 capture, or replicas that differ.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        reply = httpx.get(f"{url.rstrip('/')}/server_info", headers=headers, timeout=30)
        reply.raise_for_status()
        states = reply.json()["internal_states"]
    except (httpx.HTTPError, httpx.InvalidURL, KeyError, json.JSONDecodeError) as error:
        raise CaptureUnknown(f"{url}/server_info: {error!r}") from error
    found = [state.get("eagle3_capture") for state in states]
    if not found or found[0] is None:
        raise CaptureUnknown(
            f"{url} captures no layers: it was started without --speculative-algorithm EAGLE3, "
            "or is not this project's SGLang"
        )
    if any(other != found[0] for other in found):
        raise CaptureUnknown(f"{url}: its replicas capture different layers: {json.dumps(found)}")
    told: dict[str, Any] = found[0]
    return told


def of_pair(target: str, draft: str) -> dict[str, Any]:
    """What the contract says of a pair, in the words of a server.

    Raises:
        CaptureUnknown: the pair is refused.
    """
    contract: Any = import_module("sglang_spec.hardening.contract")
    report = contract.check_pair(target, draft, contract.Settings(allow_longer_context=True))
    if not report.accepted:
        raise CaptureUnknown(report.error_text())
    of_target, of_draft = _config(target), _config(draft)
    families: Any = import_module("sglang_spec.hardening.contract.families")
    layer_ids: Any = import_module("sglang_spec.hardening.contract.layer_ids")
    family = families.FAMILIES[of_target.architecture]
    ids = layer_ids.resolve_ids(of_draft.config, of_draft.config_file, _findings())
    return {
        "slots": [slot.to_json() for slot in report.slots],
        "layer_ids": None if ids is None else list(ids),
        "convention": f"{family.convention.value} ({family.source})",
        # By the draft's config, which the contract held against the target's where that says it.
        "fc_width": len(report.slots) * of_draft.integer("target_hidden_size", "hidden_size"),
    }


def _config(model: str) -> Any:
    """The config of a model that the contract has accepted."""
    folder: Any = import_module("sglang_spec.hardening.contract.folder")
    checkpoint: Any = import_module("sglang_spec.hardening.contract.checkpoint")
    return checkpoint.read_config(folder.find_folder(model, None), _findings())


def _findings() -> Any:
    report: Any = import_module("sglang_spec.hardening.contract.report")
    return report.Findings()


def difference(told: dict[str, Any]) -> str | None:
    """What the server does otherwise than the contract says, None where nothing is."""
    if len(told) < 2:
        return None
    server, contract = told["server"], told["contract"]
    for one, other in zip(server["slots"], contract["slots"], strict=False):
        if one != other:
            return (
                f"slot {one['slot']} of the server takes {one['takes']}, by the contract of this "
                f"pair it takes {other['takes']}; the server was started with another draft"
            )
    if server["fc_width"] != contract["fc_width"]:
        return f"fc is {server['fc_width']} wide in the server, {contract['fc_width']} in this pair"
    return None


def _print(source: str, found: dict[str, Any]) -> None:
    ids = "none, the default layers" if found["layer_ids"] is None else found["layer_ids"]
    click.echo(f"{source}: fc takes {len(found['slots'])} states, {found['fc_width']} wide")
    for slot in found["slots"]:
        click.echo(f"  slot {slot['slot']} takes {slot['takes']} (loop index {slot['loop_index']})")
    click.echo(f"  ids {ids}: {found['convention']}")
    if "fingerprint" in found:
        click.echo(f"  fingerprint: {found['fingerprint']}")
