"""Servers on the tiny DeepSeek and Kimi pairs, and what each of them must do: CPU and GPU alike."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_spec import host
from sglang_spec.capture import fingerprint
from sglang_spec.capture.compare import compare
from sglang_spec.capture.dump import open_dump
from sglang_spec.capture.extract import extract, plan
from sglang_spec.capture.prompts import Prompt
from sglang_spec.client import Answer, Client
from sglang_spec.hardening.contract import check_pair
from sglang_spec.models.deepseek import PLANS, deepseek_pair
from sglang_spec.models.deepseek.plan import LAYERS
from sglang_spec.models.pair import Pair
from sglang_spec.models.tiny.plan import BOS, SPECIALS, VOCABULARY
from sglang_spec.process import spawn as spawn_process
from sglang_spec.server import Launch, Spawn, Speculation

from . import deepseek_reference
from .checkpoints import Config, copy
from .faults import IDS

# A captured state is nearer to float32 than this (0.012 was seen); layers are 0.3 apart.
NEAR = 0.03
# What a server says of the draft of `one_layer_off`.
OFF_BY_ONE = "slot 1 is the output of layer 3, the draft was trained on the output of layer 2 there"


@dataclass(frozen=True)
class Setup:
    """One way to serve: a target of `PLANS`, a draft style (None: no speculation), flags."""

    target: str
    draft: str | None
    flags: tuple[str, ...] = ()
    tp: int = 1

    def __str__(self) -> str:
        backend = [flag for flag in self.flags if flag in ("triton", "flashinfer")]
        return "-".join([self.target, self.draft or "none", *backend, *(["tp2"] * (self.tp > 1))])

    def pair(self) -> Pair:
        return deepseek_pair(self.target, self.draft or "mla")

    def launch(self, draft: Path | None = None) -> Launch:
        """`draft` stands in for the setup's own."""
        pair = self.pair()
        speculation = None if self.draft is None else Speculation(draft or pair.draft)
        parallel = () if self.tp == 1 else ("--tp-size", str(self.tp))
        arguments = ("--context-length", "4096", *_device(), *self.flags, *parallel)
        return Launch(pair.target, speculation, "bfloat16", arguments)


def _device() -> tuple[str, ...]:
    if host.device() == "cpu":
        return ()
    return (
        # The tokens are the bound. What the fraction leaves free must be free on the whole device,
        # where other servers have theirs: hence a large one.
        *("--mem-fraction-static", "0.9", "--max-total-tokens", "65536"),
        *("--max-running-requests", "64", "--cuda-graph-max-bs-decode", "16"),
        *("--chunked-prefill-size", "256"),
    )


def prompts(count: int, seed: int, longest: int = 400) -> list[list[int]]:
    dice = random.Random(seed)
    return [
        [BOS, *(dice.randrange(SPECIALS, VOCABULARY) for _ in range(dice.randrange(3, longest)))]
        for _ in range(count)
    ]


def marked_draft(setup: Setup, folder: Path) -> Path:
    """The draft with a fingerprint that transformers made of the layers its contract names."""
    pair = setup.pair()
    loops = [slot.loop_index for slot in check_pair(pair.target, pair.draft).slots]
    asked = prompts(2, seed=5, longest=60)
    training = deepseek_reference.dump(pair.target, asked, folder / "training", loops)
    every = deepseek_reference.dump(pair.target, asked, folder / "every", range(LAYERS))
    draft = copy(pair.draft, folder / "draft")
    fingerprint.write(training, every, draft)
    return draft


def one_layer_off(marked: Path, folder: Path) -> Path:
    """A copy whose second id is one too high: every check of configs passes, one layer is wrong."""

    def edit(config: Config) -> None:
        first, second, last = config["eagle_config"][IDS]
        config["eagle_config"][IDS] = [first, second + 1, last]

    return copy(marked, folder, edit)


def check_tokens(setup: Setup, client: Client, batch: int, tokens: int = 40) -> list[Answer]:
    """`batch` prompts at once answer what the plan says, speculating or not."""
    asked = prompts(batch, seed=batch)
    answers = client.generate_batch(asked, tokens, ignore_eos=True)
    plan = PLANS[setup.target]
    assert [list(answer.tokens) for answer in answers] == [plan.greedy(p, tokens) for p in asked]
    return answers


def check_accepted(answer: Answer) -> None:
    """One draft in each cycle; the last one may be cut short by the limit of tokens."""
    seen = list(answer.correct_drafts) + [0] * 4
    assert answer.cycles > 0 and sum(seen) == answer.cycles
    assert seen[1] >= answer.cycles - 1, seen


def check_captured(setup: Setup, client: Client) -> None:
    """The server captures the layers of the contract, and was proven to by the fingerprint."""
    pair = setup.pair()
    report = check_pair(pair.target, pair.draft)
    assert report.accepted, report.error_text()
    for state in client.get("/server_info").json()["internal_states"]:
        told: dict[str, Any] = state["eagle3_capture"]
        assert told["slots"] == [slot.to_json() for slot in report.slots]
        assert told["fc_width"] == 768
        assert "deepseek_v2.py" in told["convention"]
        assert told["fingerprint"] == "2 of 2 prompts compared"


def check_states(setup: Setup, folder: Path, spawn: Spawn = spawn_process) -> None:
    """A dump of every layer is what transformers computes, layer by layer."""
    target = setup.pair().target
    asked = prompts(2, seed=9, longest=80)
    theirs = deepseek_reference.dump(target, asked, folder / "theirs", range(LAYERS))
    listed = [Prompt(number, tuple(ids)) for number, ids in enumerate(asked)]
    ours = folder / "ours"
    extract(plan(target, None, None), listed, ours, setup.launch().arguments, spawn=spawn)
    found = compare(open_dump(ours), theirs)
    for slot, match in enumerate(found.matches_a):
        print(f"{setup}: slot {slot} is the {match.label}, relative error {match.error:.4f}")
        assert match.label == deepseek_reference.takes(slot)
        assert match.error < NEAR, f"slot {slot}: {match}"
