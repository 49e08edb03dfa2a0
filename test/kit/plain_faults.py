"""Records what plain SGLang does with each faulty pair: `python -m kit.plain_faults`.

Plain means the pinned wheel with nothing but the patch that lets it run on this CPU. Slow (a server
for each pair), so it is run on demand and its result is kept beside this file, with the date.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny import TINY, TINY_HALF, tiny_pair
from sglang_spec.server import Launch, Server, ServerError, Speculation

from kit.faults import FAULTS, Fault
from kit.preloaded import Zygote
from kit.servers import spawner
from kit.upstream import git_apply, plain_tree

RECORD = Path(__file__).with_name("plain_faults.json")
ROOT = Path(__file__).resolve().parents[2]
PATCH = "cpu-attention-without-amx"
PROMPTS = ([0, 5, 9, 44, 17], [0, 200, 31], [0, 77, 78, 79, 80, 81, 82])
TOKENS = 32


def launch_of(fault: Fault, pair: Pair) -> Launch:
    """The launch of a faulty pair."""
    speculation = Speculation(pair.draft, algorithm=fault.algorithm)
    if not fault.drop:
        return Launch(pair.target, speculation, arguments=fault.arguments)
    given = speculation.arguments()
    place = given.index("--speculative-draft-model-path")
    return Launch(pair.target, None, arguments=[*given[:place], *given[place + 2 :]])


def tree(under: Path) -> Path:
    """The plain package with that one patch and the module it calls."""
    folder = under / "tree"
    shutil.copytree(plain_tree() / "sglang", folder / "sglang", symlinks=True)
    git_apply(ROOT / "patches" / f"{PATCH}.patch", folder / "sglang")
    own = folder / "sglang/srt/spec_hardening"
    own.mkdir()
    for name in ("__init__.py", "cpu_attention.py"):
        shutil.copyfile(ROOT / "python/sglang/srt/spec_hardening" / name, own / name)
    for name in ("sglang_spec", "vendoring"):
        (folder / name).symlink_to(ROOT / "python" / name)
    return folder


def observe(fault: Fault, zygote: Zygote, folder: Path) -> dict[str, Any]:
    """Start the pair, decode a little, and say what became of it."""
    pair = fault.make(tiny_pair(TINY_HALF if fault.reduced else TINY), folder)
    log = folder / "log"
    server = Server(launch_of(fault, pair), log, spawn=spawner(zygote))
    try:
        try:
            server.wait_ready(150)
        except ServerError:
            return _ended(server, log)
        return _decode(server, log)
    finally:
        server.stop()


def _ended(server: Server, log: Path) -> dict[str, Any]:
    text = log.read_text(errors="replace")
    if server.returncode is None:
        return {"outcome": "hangs", "text": _last_error(text)}
    loaded = "Load weight begin" in text
    outcome = "ends after loading began" if loaded else "ends before loading"
    return {"outcome": outcome, "text": _last_error(text)}


def _decode(server: Server, log: Path) -> dict[str, Any]:
    tokens = cycles = 0
    try:
        client = Client(server.url)
        for prompt in PROMPTS:
            answer = client.generate(list(prompt), TOKENS, ignore_eos=True)
            tokens, cycles = tokens + len(answer.tokens), cycles + answer.cycles
    except Exception as error:
        return {
            "outcome": "ready, then dies",
            "text": _last_error(log.read_text(errors="replace")) or repr(error),
        }
    length = tokens / max(cycles, 1)
    return {"outcome": "ready, no word", "text": f"accept length {length:.2f}"}


def _last_error(text: str) -> str:
    """The last line that names an exception, without paths."""
    lines = [
        line
        for line in text.splitlines()
        if re.match(r"(\[[^]]*\] )?\w*(\.\w+)*(Error|Exception|Exit)\b", line)
    ]
    return re.sub(r"/[^ '\":]*/", "", lines[-1])[:160] if lines else ""


def main(names: list[str]) -> None:
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"date": "", "faults": {}}
    with tempfile.TemporaryDirectory() as scratch:
        plain = tree(Path(scratch))
        rest = os.environ.get("PYTHONPATH", "").split(":")
        kept = [path for path in rest if path and not (Path(path) / "sglang").is_dir()]
        os.environ["PYTHONPATH"] = ":".join([str(plain), *kept])
        zygote = Zygote()
        try:
            for fault in FAULTS:
                known = record["faults"].get(fault.name)
                if not fault.launchable or (names and fault.name not in names):
                    continue
                if known and not names:
                    continue
                seen = observe(fault, zygote, Path(scratch) / fault.name)
                record["faults"][fault.name] = seen
                record["date"] = date.today().isoformat()
                RECORD.write_text(json.dumps(record, indent=1) + "\n")
                print(fault.name, seen, flush=True)
        finally:
            zygote.close()


if __name__ == "__main__":
    main(sys.argv[1:])
