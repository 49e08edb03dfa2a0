"""Reads the list of layer ids from a draft's config: one list, or a refusal.

Upstream reads it in four places that disagree about nested and top-level keys, and takes its
default layers in silence where it finds none. Here both places are read, they must agree, and a key
that looks like a misspelt one is refused. The engine's resolver calls `resolve_ids` too, so that
both give the same answer.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .report import Findings

IDS = "eagle_aux_hidden_state_layer_ids"
NESTED = "eagle_config"
USE_AUX = "use_aux_hidden_state"
NORM = "norm_before_fc"
_KNOWN = (IDS, USE_AUX, NORM)
# Words by which other trainers and other kinds of drafts name such a list.
_OWNERS = ("eagle", "aux", "target", "captur", "draft", "specul", "flash")


def resolve_ids(
    config: Mapping[str, Any], file: Path | str, findings: Findings
) -> tuple[int, ...] | None:
    """The ids as the draft declares them, None if it declares none (or what it has was refused)."""
    nested = _nested(config, file, findings)
    _refuse_misspelt(config, nested, file, findings)
    places = [(f"{NESTED}.{IDS}", nested.get(IDS)), (IDS, config.get(IDS))]
    given = [(key, value) for key, value in places if value is not None]
    lists = [(key, _integers(key, value, file, findings)) for key, value in given]
    if any(ids is None for _, ids in lists):
        return None
    if len(lists) == 2 and lists[0][1] != lists[1][1]:
        findings.refuse(
            "ids-disagree",
            file,
            IDS,
            {key: value for key, value in given},
            f"the nested and the top-level list differ; keep only {NESTED}.{IDS}, with the layers "
            "the draft was trained on",
        )
        return None
    return lists[0][1] if lists else None


def ids_key(config: Mapping[str, Any]) -> str:
    """The key under which the ids stand, for messages."""
    top_only = section(config).get(IDS) is None and config.get(IDS) is not None
    return IDS if top_only else f"{NESTED}.{IDS}"


def uses_aux(config: Mapping[str, Any]) -> bool:
    """Whether the draft takes captured layers at all; upstream's default is yes."""
    return bool(section(config).get(USE_AUX, True))


def section(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """`eagle_config`, {} where there is none that can be read."""
    nested = config.get(NESTED)
    return nested if isinstance(nested, Mapping) else {}


def _nested(config: Mapping[str, Any], file: Path | str, findings: Findings) -> Mapping[str, Any]:
    nested = config.get(NESTED)
    if nested is None:
        nested = {}
    if not isinstance(nested, Mapping):
        findings.refuse(
            "eagle-config-type",
            file,
            NESTED,
            nested,
            f'write it as an object: {{"{IDS}": [...]}}',
        )
        return {}
    for key, flag in (
        (f"{NESTED}.{USE_AUX}", nested.get(USE_AUX, True)),
        (f"{NESTED}.{NORM}", nested.get(NORM, False)),
        (NORM, config.get(NORM) or False),
    ):
        if not isinstance(flag, bool):
            findings.refuse("eagle-config-type", file, key, flag, "write true or false")
    return nested


def _refuse_misspelt(
    config: Mapping[str, Any], nested: Mapping[str, Any], file: Path | str, findings: Findings
) -> None:
    for key in nested:
        if key not in _KNOWN and _meant_known(key, nested[key]):
            _misspelt(f"{NESTED}.{key}", nested[key], f"{NESTED}.{_meant(key)}", file, findings)
    if config.get(USE_AUX, True) is not nested.get(USE_AUX, True) and USE_AUX in config:
        _misspelt(USE_AUX, config[USE_AUX], f"{NESTED}.{USE_AUX}", file, findings)
    named = nested.get(IDS) is not None or config.get(IDS) is not None
    for key, value in config.items():
        if key in (IDS, NESTED):
            continue
        if isinstance(value, Mapping) and (IDS in value or _close(key, (NESTED,))):
            _misspelt(key, value, NESTED, file, findings)
        elif _close(key, (IDS,)) or (_id_list(value) and "aux" in key.lower()):
            _misspelt(key, value, f"{NESTED}.{IDS}", file, findings)
        elif not named and (other := _elsewhere(key, value)):
            _misspelt(*other, f"{NESTED}.{IDS}", file, findings)


def _elsewhere(key: str, value: Any) -> tuple[str, Any] | None:
    """A list of layers under another's name: `target_layer_ids`, `dflash_config.layers`, …"""
    if isinstance(value, Mapping):
        for inner, held in value.items():
            if _id_list(held) and _names_layers(f"{key}.{inner}", inner):
                return f"{key}.{inner}", held
    elif _id_list(value) and _names_layers(key, key):
        return key, value
    return None


def _names_layers(path: str, name: str) -> bool:
    return "layer" in name.lower() and any(owner in path.lower() for owner in _OWNERS)


def _misspelt(key: str, value: Any, meant: str, file: Path | str, findings: Findings) -> None:
    findings.refuse(
        "ids-misspelt",
        file,
        key,
        value,
        f"nothing reads this key, so {_lost(meant)}; write it as {meant}",
    )


def _lost(meant: str) -> str:
    if meant.endswith((USE_AUX, NORM)):
        return "its default would be taken"
    return "the default layers would be captured"


def _meant_known(key: str, value: Any) -> bool:
    name = key.lower()
    return _close(key, _KNOWN) or (_id_list(value) and ("layer" in name or "aux" in name))


def _meant(key: str) -> str:
    return (difflib.get_close_matches(key, _KNOWN, 1, 0.8) or [IDS])[0]


def _close(key: str, known: tuple[str, ...]) -> bool:
    return bool(difflib.get_close_matches(key.lower().replace("-", "_"), known, 1, 0.8))


def _id_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(i, int) for i in value)


def _integers(key: str, value: Any, file: Path | str, findings: Findings) -> tuple[int, ...] | None:
    if not isinstance(value, (list, tuple)):
        findings.refuse("ids-type", file, key, value, "write a list of integers, e.g. [2, 30, 58]")
        return None
    if not value:
        findings.refuse(
            "ids-empty",
            file,
            key,
            list(value),
            "name the layers the draft was trained on, or leave the key out for the default layers",
        )
        return None
    for place, entry in enumerate(value):
        if isinstance(entry, bool) or not isinstance(entry, int):
            findings.refuse(
                "ids-type", file, f"{key}[{place}]", entry, "write the layer as a plain integer"
            )
            return None
    return tuple(value)
