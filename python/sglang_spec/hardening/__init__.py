"""The torch-free modules of `sglang.srt.spec_hardening`, importable without the engine.

`import sglang.srt.spec_hardening.contract` runs `sglang/__init__.py` and `sglang/srt/__init__.py`,
which import torch and much else. This package has no modules of its own: it finds those of the
engine's folder beside it, so `sglang_spec.hardening.contract` is the same code, in milliseconds
and on machines without torch. Only for modules that import nothing of SGLang.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path


def _engine_folder() -> str:
    beside = Path(__file__).resolve().parents[2] / "sglang"
    found = [beside] if beside.is_dir() else []
    spec = None if found else importlib.util.find_spec("sglang")
    for place in (spec.submodule_search_locations or []) if spec else []:
        found.append(Path(place))
    for package in found:
        if (folder := package / "srt" / "spec_hardening").is_dir():
            return str(folder)
    raise ImportError("there is no sglang/srt/spec_hardening beside sglang_spec")


__path__ = [_engine_folder()]
