"""Names that the engine knows, read from its torch-free modules without importing the engine."""

from __future__ import annotations

import importlib.util
import re
from functools import lru_cache
from importlib import import_module
from pathlib import Path


def reasoning_parsers() -> tuple[str, ...]:
    """What `--reasoning-parser` takes."""
    return _names("parser/reasoning_parser_names.py", "REASONING_PARSER_NAMES")


def tool_call_parsers() -> tuple[str, ...]:
    """What `--tool-call-parser` takes."""
    return _names("function_call/parser_names.py", "TOOL_CALL_PARSER_NAMES")


@lru_cache(maxsize=1)
def architectures() -> tuple[str, ...]:
    """Names of classes in the engine's folder of models, among them all that it serves."""
    classes = re.compile(r"^class (\w+)", re.MULTILINE)
    files = (srt() / "models").rglob("*.py")
    found = {name for file in files for name in classes.findall(file.read_text(encoding="utf-8"))}
    if "LlamaForCausalLM" not in found:
        raise ImportError(f"{srt() / 'models'} has no models any more")
    return tuple(sorted(found))


def srt() -> Path:
    """The folder of the engine."""
    return Path(import_module("sglang_spec.hardening").__path__[0]).parent


@lru_cache(maxsize=8)
def _names(file: str, attribute: str) -> tuple[str, ...]:
    """A list in a module of `sglang/srt` that imports nothing.

    Raises:
        ImportError: the module is not there, or has no such list: upstream moved it.
    """
    path = srt() / file
    spec = importlib.util.spec_from_file_location(f"_sglang_{attribute.lower()}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"{path} is not there; run `make vendor`")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, attribute):
        raise ImportError(f"{path} has no {attribute} any more")
    return tuple(getattr(module, attribute))
