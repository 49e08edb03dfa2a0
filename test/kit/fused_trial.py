"""The penalty kernels on the CPU, through triton's interpreter, held against the torch code.

`python -m kit.fused_trial quick` (TRITON_INTERPRET=1) prints a JSON line for each of QUICK with
what differs, and one for each of FAULTS: a kernel with that text of it changed, and the first
difference that it made there. `all` is the rest of the cases. The interpreter cuts the low bits
off where it makes a bfloat16 of a float32; a GPU rounds (`cvt.rn`, see `compiled`), so that is put
right here.

`python -m kit.fused_trial compile` makes machine code for GPUs, which needs none, the way a launch
does, and prints what instructions of interest are in it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.spec_hardening.fidelity import trial
from sglang.srt.spec_hardening.fidelity.fields import Fields
from sglang.srt.spec_hardening.fidelity.trial import ASKED, Case

HALF = torch.bfloat16
CPU = torch.device("cpu")
# Rates that leave rests of both signs, and no minimum.
RATES = (Fields(frequency=1.9, presence=0.31, repetition=1.37), Fields(repetition=0.61))
SHORT = tuple(Fields(min_new_tokens=least, stop_tokens=(0, 7)) for least in range(2, 14))
QUICK = (
    Case(asked=(None, *RATES), is_apart=True, vocabulary=33, few=33, dtype=HALF),
    Case(asked=SHORT, before=5, vocabulary=40, few=40),
    Case(asked=SHORT, before=5, vocabulary=40, few=40, is_tree=True),
    Case(asked=(*RATES, *ASKED, None), nodes=6, is_tree=True, vocabulary=50, few=9),
    Case(asked=RATES, before=0, few=2, nodes=8, steps=6),
    *trial.CASES,
)
CASES = (
    *(Case(nodes=width, dtype=HALF, seed=width, vocabulary=1024 + width) for width in range(1, 9)),
    *(Case(nodes=width, is_tree=True, seed=width, vocabulary=600) for width in range(1, 9)),
    *(Case(vocabulary=size, few=size, seed=size) for size in (8, 1024, 2048, 2049)),
    Case(asked=RATES, vocabulary=1, few=1),
    Case(asked=(None, ASKED[2], None)),
    Case(asked=(None, *RATES, None, *RATES), is_apart=True, dtype=HALF),
    Case(asked=ASKED, is_apart=True, is_tree=True, nodes=6, vocabulary=700),
    Case(asked=ASKED, before=900, few=3001, nodes=3),
    Case(asked=ASKED, before=900, few=40, nodes=5, is_tree=True, dtype=HALF),
    Case(asked=RATES[:1], before=9, nodes=64, is_tree=True, vocabulary=300, few=300, steps=1),
    Case(asked=RATES[:1], before=9, nodes=70, is_tree=True, vocabulary=99, few=99, steps=1),
    Case(dtype=torch.float16, padding=0),
)
FAULTS = (
    ("node + 1 < least", "node < least"),
    ("depth + 1 < least", "depth < least"),
    ("is_stop | (columns", "(columns"),
    ("(total > 0) | banned", "total > 0"),
    ("tl.where(total > 0, scaled", "tl.where(total > 1, scaled"),
    ("frequency * total", "frequency * before_of(total)"),
    ("* total.to(tl.float32) + presence", "* (total.to(tl.float32) + presence)"),
    ("(value - taken).to(given.dtype).to(tl.float32)", "value - taken"),
    ("tl.div_rn(rest, repetition)", "rest * (1.0 / repetition)"),
    ("rest < 0", "value < 0"),
    ("            if node > 0:\n", "            if node > 1:\n"),
    ("columns < vocabulary", "columns < vocabulary - 1"),
    ("mask=inside, other=0)", "mask=inside, other=0) * 0"),
    ("siblings == older, at, 0", "siblings == older, at * 0, 0"),
    ("(row * nodes + node) * step", "(row * nodes + node) * vocabulary"),
    ("tl.load(lines + request)", "request"),
    ("tl.load(rows + request)", "request"),
    ("tl.atomic_add(counts", "tl.store(counts"),
    ("tl.load(length + line) + accepted", "tl.load(length + line) + accepted - 1"),
    ("range(accepted)", "range(1, accepted)"),
    ("row * depth + place", "row * nodes"),
)  # fmt: skip


def faulty(old: str, new: str, folder: Path) -> Any:
    """The module of the kernels with a part of its text changed."""
    from sglang.srt.spec_hardening.fidelity import kernel

    text = Path(kernel.__file__).read_text()
    assert old in text, old
    text = text.replace(old, new)
    if "before_of" in new:
        text = text.replace("frequency * before_of(total)", "frequency * (total - 1)")
    if new.startswith("tl.store"):
        text = text.replace(', mask=known, sem="relaxed")', ", mask=known)")
    file = folder / f"kernel_{abs(hash((old, new)))}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def round_as_a_gpu() -> None:
    from triton import language as tl
    from triton.runtime import interpreter

    plain = interpreter._convert_float

    def convert(value: Any, before: Any, after: Any, mode: Any) -> Any:
        if after != tl.bfloat16 or before != tl.float32:
            return plain(value, before, after, mode)
        return torch.from_numpy(value.copy()).bfloat16().view(torch.uint16).numpy()

    interpreter._convert_float = convert


def interpreted(which: str) -> None:
    from sglang.srt.spec_hardening.fidelity import fused

    assert os.environ.get("TRITON_INTERPRET") == "1"
    round_as_a_gpu()
    for case in QUICK if which == "quick" else CASES:
        found = trial.differences(fused.FusedStep, CPU, [case])
        print(json.dumps({"case": str(case), "differs": found}), flush=True)
    if which != "quick":
        return
    with tempfile.TemporaryDirectory() as folder:
        for old, new in FAULTS:
            fused.kernel = faulty(old, new, Path(folder))  # type: ignore[attr-defined]
            tried = (trial.differences(fused.FusedStep, CPU, [case]) for case in QUICK)
            seen = next(filter(None, tried), [])
            print(json.dumps({"fault": f"{old} -> {new}", "seen": seen}), flush=True)


def compiled() -> None:
    """The launches of a step are made as ever, up to the driver, which is stood in for."""
    from sglang.srt.spec_hardening.fidelity import fused, kernel
    from triton.backends.compiler import GPUTarget
    from triton.compiler import compiler
    from triton.runtime.driver import driver

    for capability in (80, 90):
        target = GPUTarget("cuda", capability, 32)
        driver.set_active(
            SimpleNamespace(
                get_current_target=lambda target=target: target,
                get_current_device=lambda capability=capability: capability,
                get_current_stream=lambda _: 0,
            )
        )
        compiler.CompiledKernel._init_handles = _do_not_launch
        for dtype in (torch.float32, HALF):
            for case in (*QUICK, *CASES):
                if case.nodes <= kernel.LINKS:
                    small = replace(case, vocabulary=40, few=9, before=2, steps=1, dtype=dtype)
                    trial.differences(fused.FusedStep, CPU, [small])
        for made in (kernel.judge, kernel.count):
            for one in made.device_caches[capability][0].values():
                text, bits = one.asm["ptx"], len(one.asm["cubin"])
                seen = sorted(set(re.findall(r"\b(?:fma|mad\.f|div|cvt\.r|atom)[.a-z0-9]*", text)))
                told = {"kernel": made.__name__, "capability": capability, "bytes": bits}
                print(json.dumps({**told, "seen": seen}), flush=True)


def _do_not_launch(self: Any) -> None:
    self.function, self._run = 0, lambda *_: None


if __name__ == "__main__":
    compiled() if sys.argv[1] == "compile" else interpreted(sys.argv[1])
