"""Records which answers plain SGLang changes with EAGLE3: `python -m kit.plain_fidelity`.

Plain means the pinned wheel with nothing but the patch that lets it run on this CPU. Run on demand;
the result is kept beside this file, with the date.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from datetime import date
from itertools import takewhile
from pathlib import Path
from typing import Any

from sglang_spec.client import Client
from sglang_spec.models import embedded_pair
from sglang_spec.server import Server

from kit import lossless
from kit.fidelity_table import CASES, Said, answer
from kit.plain_faults import tree
from kit.preloaded import Zygote
from kit.servers import spawner

RECORD = Path(__file__).with_name("plain_fidelity.json")


def first_difference(one: str, other: str) -> int:
    """Equal characters at the start."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def compared(without: Said, speculating: Said) -> dict[str, Any]:
    found: dict[str, Any] = {
        "equal": without == speculating,
        "tokens": [without.tokens, speculating.tokens],
    }
    if not found["equal"]:
        found["equal characters"] = first_difference(without.texts[0], speculating.texts[0])
        found["said"] = [asdict(said)["texts"][0][:100] for said in (without, speculating)]
    return found


def answers(zygote: Zygote, speculation: bool, folder: Path) -> dict[str, Said]:
    log = folder / f"log-{speculation}"
    launch = (lossless.speculating if speculation else lossless.plain)(embedded_pair())
    with Server(launch, log, spawn=spawner(zygote)) as server:
        server.wait_ready()
        client = Client(server.url)
        return {case: answer(client, case) for case in CASES}


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        plain = tree(Path(scratch))
        rest = os.environ.get("PYTHONPATH", "").split(":")
        kept = [path for path in rest if path and not (Path(path) / "sglang").is_dir()]
        os.environ["PYTHONPATH"] = ":".join([str(plain), *kept])
        zygote = Zygote()
        try:
            without, speculating = (answers(zygote, on, Path(scratch)) for on in (False, True))
        finally:
            zygote.close()
    found = {case: compared(without[case], speculating[case]) for case in CASES}
    record = {"date": date.today().isoformat(), "cases": found}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    for case, result in found.items():
        print(case, result["equal"], result["tokens"])


if __name__ == "__main__":
    main()
