"""What is wrong between keys that are each right: pure, the same on every machine."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from .extra import extra
from .keys import key_of, near_miss, one_of
from .names import architectures, reasoning_parsers, tool_call_parsers
from .problem import Problem
from .sections import EMBEDDED, SECTIONS, Recipe
from .server_flags import server_flags

_NAME_OF_A_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")


def broken(recipe: Recipe) -> Iterator[Problem]:
    """Every rule that this recipe breaks."""
    for rule in RULES:
        for code, key, value, remedy in rule(recipe):
            yield Problem(code, recipe.file, key, value, remedy)


Broken = Iterator[tuple[str, str, Any, str]]


def _model(recipe: Recipe) -> Broken:
    model, machine = recipe.model, recipe.machine
    if model.served_name is not None and ":" in model.served_name:
        remedy = "a colon separates the name of an adapter; write another sign"
        yield "served-name", "model.served_name", model.served_name, remedy
    known = architectures()
    own = "SGLANG_EXTERNAL_MODEL_PACKAGE" in recipe.extra.environment
    if model.architecture is not None and model.architecture not in known and not own:
        near = near_miss(model.architecture, known, few=True)
        remedy = f"SGLang has no such model; {near}"
        yield "architecture", "model.architecture", model.architecture, remedy
    wants = machine.gpus or machine.name or machine.capability or machine.memory_gib
    if model.device == "cpu" and wants:
        yield "no-gpus", "model.device", "cpu", "[machine] wants GPUs; leave out one of the two"


def _choices(recipe: Recipe) -> Broken:
    """Values that the server's own flag does not take."""
    for name in SECTIONS:
        section = getattr(recipe, name)
        for one in fields(section) if section is not None else ():
            flag, value = server_flags().get(key_of(one).flag), getattr(section, one.name)
            if flag is None or flag.choices is None or value is None or key_of(one).one_of:
                continue
            if value not in flag.choices:
                yield "not-a-choice", f"{name}.{one.name}", value, one_of(value, flag.choices)


def _draft(recipe: Recipe) -> Broken:
    draft = recipe.draft
    if draft is None:
        if recipe.capture.outputs_of_layers or recipe.capture.contract:
            yield "no-draft", "capture", "given", "it is about a draft; add [draft] or leave it out"
        if recipe.threshold is not None:
            yield "no-draft", "threshold", "given", "nothing speculates without [draft]"
        return
    if draft.topk == 1 and draft.num_draft_tokens != draft.num_steps + 1:
        remedy = f"a chain of {draft.num_steps} steps has {draft.num_steps + 1} draft tokens"
        yield "draft-tokens", "draft.num_draft_tokens", draft.num_draft_tokens, remedy
    most = 1 + draft.topk + (draft.num_steps - 1) * draft.topk**2
    if draft.topk > 1 and draft.num_draft_tokens > most:
        remedy = f"{draft.num_steps} steps with topk {draft.topk} draft {most} tokens at most"
        yield "draft-tokens", "draft.num_draft_tokens", draft.num_draft_tokens, remedy
    floor = draft.min_accept_length
    if floor is not None and floor > draft.num_steps + 1:
        remedy = f"never reached, {draft.num_steps} steps accept {draft.num_steps + 1} at most"
        yield "accept-length", "draft.min_accept_length", floor, remedy
    if draft.algorithm == "EAGLE3" and draft.path == recipe.model.path != EMBEDDED:
        yield "not-a-pair", "draft.path", draft.path, "it is the target; write the draft's folder"
    if (draft.path == EMBEDDED) != (recipe.model.path == EMBEDDED):
        yield "not-a-pair", "draft.path", draft.path, f'"{EMBEDDED}" is a pair: write it for both'


def _capture(recipe: Recipe) -> Broken:
    layers = recipe.capture.outputs_of_layers
    where = "capture.outputs_of_layers"
    if any(layer < 0 for layer in layers):
        yield "layer-negative", where, layers, "layers count from 0; the embedding is not a layer"
    elif list(layers) != sorted(set(layers)):
        yield "layer-order", where, layers, f"write {sorted(set(layers))}: each once, in order"
    elif recipe.model.layers is not None and layers and layers[-1] >= recipe.model.layers:
        remedy = f"model.layers is {recipe.model.layers}, so {recipe.model.layers - 1} is the last"
        yield "layer-beyond", where, layers, remedy


def _threshold(recipe: Recipe) -> Broken:
    threshold, most = recipe.threshold, recipe.limits.max_running_requests
    if threshold is None:
        return
    off, on = threshold.disable_at, threshold.enable_at
    if isinstance(off, int):
        if most is not None and off > most:
            remedy = f"never reached, limits.max_running_requests is {most}"
            yield "threshold-unreached", "threshold.disable_at", off, remedy
        if on is not None and on >= off:
            yield "threshold-order", "threshold.enable_at", on, f"write less than {off}"
    elif on is not None:
        yield "threshold-order", "threshold.enable_at", on, '"auto" finds its own; leave it out'


def _limits(recipe: Recipe) -> Broken:
    limits = recipe.limits
    most, graphs = limits.max_running_requests, limits.cuda_graph_max_bs
    if recipe.draft is not None and most is None:
        remedy = "with a draft SGLang silently serves 48 at once; write how many it shall be"
        yield "running-requests", "limits.max_running_requests", None, remedy
    if most is not None and graphs is not None and graphs > most:
        remedy = f"never replayed, limits.max_running_requests is {most}"
        yield "graphs-unreached", "limits.cuda_graph_max_bs", graphs, remedy
    if limits.chunked_prefill_size == 0:
        yield "out-of-range", "limits.chunked_prefill_size", 0, "write -1 for no chunks"


def _parsers(recipe: Recipe) -> Broken:
    for key, value, known in (
        ("parsers.reasoning", recipe.parsers.reasoning, reasoning_parsers()),
        ("parsers.tool_call", recipe.parsers.tool_call, tool_call_parsers()),
    ):
        if value is not None and value not in (*known, "auto"):
            yield "parser", key, value, near_miss(value, known)


def _cache(recipe: Recipe) -> Broken:
    cache = recipe.hierarchical_cache
    if cache is not None and cache.ratio is not None and cache.size_gb is not None:
        remedy = "size_gb goes before ratio, which would be ignored; leave one of them out"
        yield "cache-size", "hierarchical_cache.size_gb", cache.size_gb, remedy


def _listen(recipe: Recipe) -> Broken:
    host = recipe.listen.host
    if not _is_host(host):
        yield "host", "listen.host", host, "write an address or a name of this host, nothing else"
    elif not _is_loopback(host) and recipe.listen.secrets is None:
        remedy = (
            "reachable from other hosts without an API key; give listen.secrets, a file with "
            "`api-key: …`, or bind to 127.0.0.1"
        )
        yield "api-key", "listen.host", host, remedy
    secrets = recipe.listen.secrets
    if secrets is not None and not secrets.endswith((".yaml", ".yml")):
        yield "secrets-name", "listen.secrets", secrets, "SGLang reads .yaml or .yml only"


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_host(host: str) -> bool:
    numbers = host.replace(".", "").isdigit()  # what looks like an address has to be one
    name = _NAME_OF_A_HOST.fullmatch(host) and not numbers
    return _address(host) is not None or bool(name)


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def undivided(recipe: Recipe, heads: int | None) -> Broken:
    """Attention heads that the ranks cannot share; None where nobody says how many there are."""
    size = recipe.nodes.tp_size
    split = {"--attn-dp-size", "--enable-dp-attention"} & set(recipe.extra.flags)
    if heads is not None and heads % size and not split:
        sizes = [one for one in range(1, heads + 1) if heads % one == 0]
        remedy = f"{heads} attention heads do not divide by it; write one of {sizes}"
        yield "heads", "nodes.tp_size", size, remedy


def _nodes(recipe: Recipe) -> Broken:
    nodes, gpus = recipe.nodes, recipe.machine.gpus
    if nodes.tp_size % nodes.count:
        yield "nodes", "nodes.tp_size", nodes.tp_size, f"write a multiple of {nodes.count} nodes"
    if nodes.rank >= nodes.count:
        yield "nodes", "nodes.rank", nodes.rank, f"ranks of {nodes.count} nodes count from 0"
    if nodes.count > 1 and nodes.leader is None:
        yield "nodes", "nodes.leader", None, "several nodes meet somewhere; write HOST:PORT"
    if nodes.leader is not None:
        found = re.fullmatch(r"\S+:(\d{1,5})", nodes.leader)
        if found is None or not 1 <= int(found[1]) <= 65535:
            yield "nodes", "nodes.leader", nodes.leader, "write HOST:PORT, the port from 1 to 65535"
    yield from undivided(recipe, recipe.model.attention_heads)
    here = nodes.tp_size // nodes.count
    if gpus is not None and recipe.model.device == "cuda" and gpus < here:
        yield "gpus", "machine.gpus", gpus, f"a node has {here} ranks, one a GPU"


RULES = (
    *(_model, _choices, _draft, _capture, _threshold, _limits, _parsers, _cache, _listen, _nodes),
    extra,
)
