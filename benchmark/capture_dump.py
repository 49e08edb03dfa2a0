"""What capturing costs, and what the incident of the wrong layers looks like in figures.

    python benchmark/capture_dump.py [dump compare incident] [--turns 8] [--output FILE]

On a GPU, for two servers beside each other: dump --prompts 512 --arg=--attention-backend=triton
--arg=--max-total-tokens=65536 --arg=--mem-fraction-static=0.9

On the embedded pair: `capture dump` against plain prefill of the same prompts, the two servers up
at once and asked in turns, so that whatever else the host does meets both; then a training dump
of the right layers against an inference with the embedding first, compared, and the accept length
of the draft with either. `capture compare` is timed on 10,000 tokens of three slots. Only the
first part is a measurement of speed that depends on the host; every turn's figures are written.
The output file keeps the parts that are not named.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sglang_spec import host
from sglang_spec.capture import tensorfile
from sglang_spec.capture.compare import compare
from sglang_spec.capture.dump import FORMAT, MANIFEST, SAMPLES, open_dump
from sglang_spec.capture.extract import extract, launch, plan
from sglang_spec.capture.prompts import Prompt, read_prompts
from sglang_spec.capture.remedy import remedy
from sglang_spec.capture.send import Progress, Recorder, send_all
from sglang_spec.client import Client
from sglang_spec.models import Pair, embedded_pair, held_out
from sglang_spec.server import Launch, Server, Speculation

LONGEST = 128
AT_ONCE = 32
TOKENS, SLOTS, HIDDEN = 10_000, 3, 576
WRONG, RIGHT = [-1, 3, 15], [3, 15, 27]


def dump_speed(
    pair: Pair, prompts: Sequence[Prompt], turns: int, more: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Tokens a second of both, turn by turn; the first turn of each is not counted.

    Args:
        more: further arguments of both servers.
    """
    alone = ("--disable-radix-cache", "--skip-server-warmup", *more)
    plain = Launch(pair.target, arguments=alone)
    chosen = plan(pair.target, pair.draft, None)
    capturing = launch(chosen, folder, more, "bfloat16")
    began_at = os.getloadavg()[0]
    tokens = sum(len(prompt.input_ids) for prompt in prompts)
    with (
        Server(plain, folder / "plain.log") as one,
        Server(capturing, folder / "dump.log") as other,
    ):
        one.wait_ready(900)
        other.wait_ready(900)
        client, progress = Client(one.url), Progress()

        def prefill() -> float:
            began = time.perf_counter()
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda p: client.generate(list(p.input_ids), 1), prompts))
            return tokens / (time.perf_counter() - began)

        def capture(turn: int) -> float:
            numbered = [replace(p, number=p.number + 10_000 * turn) for p in prompts]
            began = time.perf_counter()
            with Recorder(folder, progress) as recorder:
                send_all(other.url, folder, numbered, set(), recorder)
            return tokens / (time.perf_counter() - began)

        prefill()
        capture(0)
        # Which of the two goes first changes from turn to turn.
        pairs = []
        for turn in range(1, turns + 1):
            if turn % 2:
                before = prefill()
                pairs.append((before, capture(turn)))
            else:
                after = capture(turn)
                pairs.append((prefill(), after))
            print(f"turn {turn}: {pairs[-1][1] / pairs[-1][0]:.3f}", file=sys.stderr, flush=True)
        client.close()
    ratios = [captured / prefilled for prefilled, captured in pairs]
    return {
        "prompts": len(prompts),
        "tokens_a_turn": tokens,
        "at_once": AT_ONCE,
        "plain_tokens_a_second": [round(prefilled) for prefilled, _ in pairs],
        "dump_tokens_a_second": [round(captured) for _, captured in pairs],
        "ratios": [round(ratio, 3) for ratio in ratios],
        "median_ratio": round(statistics.median(ratios), 3),
        "quartiles": [round(cut, 3) for cut in statistics.quantiles(ratios, n=4)],
        "bytes_a_token": (SLOTS + 1) * chosen.hidden_size * 2,
        "arguments": list(more),
        # One server at a time works: what goes beyond its own cores is other work on the host.
        "load": [round(began_at, 1), round(os.getloadavg()[0], 1)],
    }


def compare_speed(folder: Path) -> dict[str, Any]:
    """Seconds to compare two dumps of 10,000 tokens x 3 x 576, files read included."""
    dice = np.random.default_rng(0)
    states = dice.normal(size=(TOKENS, SLOTS * HIDDEN)).astype(np.float32)
    for name, noise in (("a", 0.0), ("b", 0.004)):
        _synthetic(folder / name, states * (1 + noise * dice.normal(size=states.shape)))
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        found = compare(open_dump(folder / "a"), open_dump(folder / "b"))
        seconds.append(round(time.perf_counter() - began, 3))
    assert found.same and found.tokens == TOKENS
    return {"tokens": TOKENS, "slots": SLOTS, "hidden": HIDDEN, "seconds": seconds}


def _synthetic(folder: Path, states: Any) -> None:
    folder.mkdir()
    slots = [
        {"slot": n, "takes": f"output of layer {n}", "loop_index": n + 1} for n in range(SLOTS)
    ]
    manifest = {"format": FORMAT, "architecture": "none", "layers": 9, "hidden_size": HIDDEN}
    (folder / MANIFEST).write_text(json.dumps(manifest | {"slots": slots}))
    held = {"input_ids": np.arange(TOKENS), "states": states.astype(np.float32)}
    tensorfile.write(folder / "0.safetensors", held, bfloat16=True)
    (folder / SAMPLES).write_text(json.dumps({"id": "0", "file": "0.safetensors"}) + "\n")


def incident(pair: Pair, prompts: Sequence[Prompt], folder: Path) -> dict[str, Any]:
    """What `compare` says of the embedding captured first; accept lengths before and after."""
    names = {"training": pair.draft, "inference": [0, 4, 16], "every": None}
    dumps = {}
    for name, captured in names.items():
        draft = captured if isinstance(captured, Path) else None
        loops = captured if isinstance(captured, list) else None
        extract(plan(pair.target, draft, loops), prompts, folder / name)
        labels = ("embed", "layer3", "layer15") if name == "training" else None
        dumps[name] = open_dump(folder / name, labels)
    found = compare(dumps["training"], dumps["inference"], dumps["every"])
    return {
        "compare": found.sentences(),
        "remedy": remedy(found, dumps["inference"]),
        "accept_length_before": accept_length(pair, _with_ids(pair.draft, folder, WRONG), folder),
        "accept_length_after": accept_length(pair, _with_ids(pair.draft, folder, RIGHT), folder),
    }


def _with_ids(draft: Path, folder: Path, ids: list[int]) -> Path:
    """A folder with the draft's weights and another list of ids."""
    other = folder / f"draft{ids[0]}"
    other.mkdir()
    for file in draft.iterdir():
        if file.name != "config.json":
            (other / file.name).symlink_to(file)
    config = json.loads((draft / "config.json").read_text())
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = ids
    (other / "config.json").write_text(json.dumps(config))
    return other


def accept_length(pair: Pair, draft: Path, folder: Path, prompts: int = 32) -> dict[str, Any]:
    """Tokens a verify cycle over held-out prompts, greedy, chains of three drafts."""
    mode = ("--speculative-contract", "report")
    wanted = Launch(pair.target, Speculation(draft), arguments=mode)
    with Server(wanted, folder / f"{draft.name}.log") as server:
        server.wait_ready(900)
        client = Client(server.url)
        asked = [json.loads(line)["prompt_ids"] for line in held_out().read_text().splitlines()]
        answers = client.generate_batch(asked[:prompts], 64)
        client.close()
    tokens, cycles = sum(len(a.tokens) for a in answers), sum(a.cycles for a in answers)
    return {"prompts": prompts, "tokens": tokens, "accept_length": round(tokens / cycles, 3)}


def provenance() -> dict[str, Any]:
    """What ran, and where: enough to tell whether another run is comparable."""
    read: Any = import_module("sglang_spec.hardening.provenance")
    found = read.of_this_tree()
    return {
        "tree": read.log_line(found),
        "device": host.device(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
    }


PARTS = ("dump", "compare", "incident")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=32, help="a turn prefills these")
    parser.add_argument("--output", type=Path, default=Path("benchmark/results/capture.json"))
    parser.add_argument("--arg", action="append", default=[], help="of both servers (dump)")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; parts are {', '.join(PARTS)}")
    pair = embedded_pair()
    prompts = list(read_prompts(held_out(), pair.target, LONGEST))
    # More than there are: the same ones again, under numbers of their own.
    many = [replace(prompts[n % len(prompts)], number=n) for n in range(given.prompts)]
    work = {
        "dump": lambda folder: dump_speed(pair, many, given.turns, given.arg, folder),
        "compare": compare_speed,
        "incident": lambda folder: incident(pair, prompts[:3], folder),
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(given.output.read_text()) if given.output.exists() else {}
    for part in given.parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            found[part] = {"provenance": provenance(), **work[part](Path(folder))}
        given.output.write_text(json.dumps(found, indent=1) + "\n")
        print(part, json.dumps(found[part]), flush=True)


if __name__ == "__main__":
    main()
