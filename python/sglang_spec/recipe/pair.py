"""A recipe against its models, where their folders are at hand: config, contract, capture."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from .problem import Problem
from .rules import undivided
from .sections import Recipe

_OUTPUT = re.compile(r"output of layer (\d+)")


def folders(recipe: Recipe) -> tuple[Path | None, Path | None]:
    """Folders of target and draft; None for one that is neither here nor in the hub's cache."""
    finder: Any = import_module("sglang_spec.hardening.contract.folder")
    draft = recipe.draft
    return (
        finder.find_folder(recipe.model.path, recipe.model.revision),
        finder.find_folder(draft.path, draft.revision) if draft else None,
    )


def contract(recipe: Recipe) -> Any:
    """The contract's report on the pair; None without a draft, or where a folder is not here."""
    target, draft = folders(recipe)
    if recipe.draft is None or target is None or draft is None:
        return None
    core: Any = import_module("sglang_spec.hardening.contract")
    settings = core.Settings(
        algorithm=recipe.draft.algorithm,
        tp_size=recipe.nodes.tp_size,
        context_length=recipe.model.context_length,
        allow_longer_context=recipe.extra.environment.get(
            "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", ""
        ).lower()
        in ("1", "true"),
        quantization=recipe.model.quantization,
        draft_quantization=recipe.draft.quantization,
        device=recipe.model.device,
    )
    report = core.check_pair(str(target), str(draft), settings)
    return report.strict() if recipe.capture.contract == "strict" else report


def differs(recipe: Recipe, report: Any) -> Iterator[Problem]:
    """What the models at hand say otherwise than the recipe."""
    yield from _config_differs(recipe)
    wanted = list(recipe.capture.outputs_of_layers)
    if report is None or not report.accepted or not wanted:
        return
    takes = [_OUTPUT.fullmatch(slot.takes) for slot in report.slots]
    captured = [int(found[1]) if found else None for found in takes]
    if captured != wanted:
        said = [slot.takes for slot in report.slots]
        remedy = (
            f"the draft's config makes SGLang capture {', '.join(said)}; if the recipe is right, "
            f"{_ids(report, wanted)} into the draft's config"
        )
        yield Problem("capture-differs", recipe.file, "capture.outputs_of_layers", wanted, remedy)


def _ids(report: Any, wanted: list[int]) -> str:
    """What to write for other layers, in the form that this pair's ids have now."""
    moved = [slot.loop_index for slot in report.slots]
    return f"write what is captured at loop indices {[one + 1 for one in wanted]}, not {moved},"


def _config_differs(recipe: Recipe) -> Iterator[Problem]:
    target, _ = folders(recipe)
    if target is None or not (target / "config.json").is_file():
        return
    file = target / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        text = config.get("text_config", config)
        architecture = (config.get("architectures") or [None])[0]
        if not isinstance(text, dict):
            raise TypeError("text_config is no object")
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        remedy = f"{file} is no config ({error}); write it as a JSON object, or copy it anew"
        yield Problem("model-unreadable", recipe.file, "model.path", recipe.model.path, remedy)
        return
    for key, wanted, found in (
        ("architecture", recipe.model.architecture, architecture),
        ("hidden_size", recipe.model.hidden_size, text.get("hidden_size")),
        ("layers", recipe.model.layers, text.get("num_hidden_layers")),
        ("attention_heads", recipe.model.attention_heads, text.get("num_attention_heads")),
    ):
        if wanted is not None and found is not None and wanted != found:
            remedy = f"{target / 'config.json'} says {found!r}; write that, or leave the key out"
            yield Problem("model-differs", recipe.file, f"model.{key}", wanted, remedy)
    heads = text.get("num_attention_heads")
    if recipe.model.attention_heads is None and isinstance(heads, int):
        for code, key, value, remedy in undivided(recipe, heads):
            yield Problem(code, recipe.file, key, value, remedy)
