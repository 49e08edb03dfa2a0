"""What is wrong between keys that are each right: pure, the same on every machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from .keys import key_of, near_miss
from .names import reasoning_parsers, tool_call_parsers
from .problem import Problem
from .sections import EMBEDDED, SECTIONS, Recipe

LOOPBACK = ("localhost", "::1")
_SECRET = re.compile(r"(api[-_]?key|token|secret|password)", re.IGNORECASE)


def broken(recipe: Recipe) -> Iterator[Problem]:
    """Every rule that this recipe breaks."""
    for rule in (_draft, _capture, _threshold, _limits, _parsers, _cache, _listen, _nodes, _extra):
        for code, key, value, remedy in rule(recipe):
            yield Problem(code, recipe.file, key, value, remedy)


Broken = Iterator[tuple[str, str, Any, str]]


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
    if (draft.path == EMBEDDED) != (recipe.model.path == EMBEDDED):
        yield "not-a-pair", "draft.path", draft.path, f'"{EMBEDDED}" is a pair: write it for both'


def _capture(recipe: Recipe) -> Broken:
    layers = recipe.capture.outputs_of_layers
    where = "capture.outputs_of_layers"
    if any(layer < 0 for layer in layers):
        yield "layer-negative", where, layers, "layers count from 0; the embedding is not a layer"
    elif list(layers) != sorted(set(layers)):
        yield "layer-order", where, layers, f"write {sorted(set(layers))}: each once, in order"


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
        if value is not None and value not in known:
            yield "parser", key, value, near_miss(value, known)


def _cache(recipe: Recipe) -> Broken:
    cache = recipe.hierarchical_cache
    if cache is not None and cache.ratio is not None and cache.size_gb is not None:
        remedy = "size_gb goes before ratio, which would be ignored; leave one of them out"
        yield "cache-size", "hierarchical_cache.size_gb", cache.size_gb, remedy


def _listen(recipe: Recipe) -> Broken:
    host = recipe.listen.host
    if host not in LOOPBACK and not host.startswith("127.") and recipe.listen.secrets is None:
        remedy = (
            "reachable from other hosts without an API key; give listen.secrets, a file with "
            "`api-key: …`, or bind to 127.0.0.1"
        )
        yield "api-key", "listen.host", host, remedy
    secrets = recipe.listen.secrets
    if secrets is not None and not secrets.endswith((".yaml", ".yml")):
        yield "secrets-name", "listen.secrets", secrets, "SGLang reads .yaml or .yml only"


def _nodes(recipe: Recipe) -> Broken:
    nodes, gpus = recipe.nodes, recipe.machine.gpus
    if nodes.tp_size % nodes.count:
        yield "nodes", "nodes.tp_size", nodes.tp_size, f"write a multiple of {nodes.count} nodes"
    if nodes.rank >= nodes.count:
        yield "nodes", "nodes.rank", nodes.rank, f"ranks of {nodes.count} nodes count from 0"
    if nodes.count > 1 and nodes.leader is None:
        yield "nodes", "nodes.leader", None, "several nodes meet somewhere; write HOST:PORT"
    if nodes.leader is not None and not re.fullmatch(r"\S+:\d{1,5}", nodes.leader):
        yield "nodes", "nodes.leader", nodes.leader, "write HOST:PORT"
    here = nodes.tp_size // nodes.count
    if gpus is not None and recipe.model.device == "cuda" and gpus < here:
        yield "gpus", "machine.gpus", gpus, f"a node has {here} ranks, one a GPU"


def _extra(recipe: Recipe) -> Broken:
    own = {
        key_of(one).flag: f"{name}.{one.name}"
        for name, section in SECTIONS.items()
        for one in fields(section)
        if key_of(one).flag
    }
    for flag in recipe.extra.flags:
        name = flag.partition("=")[0]
        if name in own:
            yield "flag-has-a-key", "extra.flags", flag, f"write it as {own[name]}"
        elif name.startswith("-") and _SECRET.search(name) and "tokens" not in name:
            yield "secret", "extra.flags", name, "no secret in a recipe; give listen.secrets"
    for name in recipe.extra.environment:
        if _SECRET.search(name):
            remedy = "no secret in a recipe; set it in the environment of the service"
            yield "secret", f"extra.environment.{name}", "…", remedy
