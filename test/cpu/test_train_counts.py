"""The trainer's evaluator counts what a real server counts, cycle by cycle, in float32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.checkpoints import Config, copy
from kit.faults import IDS
from kit.servers import ServerPool
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation
from sglang_spec.train import pinned

# Two servers in float32: half a minute, for two of the captures that a config can ask for (the
# contract refuses the embedding, and the target captures by depth in any order). The same figures
# without a server are in every run (test/unit/train/test_pinned.py).
pytestmark = pytest.mark.full


@pytest.mark.parametrize("capture", ["right", "one layer later"])
def test_exact_counts(capture: str, servers: ServerPool, embedded: Pair, tmp_path: Path) -> None:
    held = json.loads((embedded.draft / pinned.NAME).read_text())
    one = held["counts"][capture]

    def edit(config: Config) -> None:
        config["eagle_config"][IDS] = one["layers"]

    draft = copy(embedded.draft, tmp_path / "draft", edit)
    (draft / "capture_fingerprint.json").unlink(missing_ok=True)  # it would refuse the wrong ones
    launch = Launch(embedded.target, Speculation(draft, held["num_steps"]), dtype="float32")
    client = servers.client(launch)
    for prompt, counts in zip(held["prompts"], one["correct_drafts"], strict=True):
        answer = client.generate(prompt, held["new_tokens"], ignore_eos=True)
        assert list(answer.correct_drafts) == counts
