"""Accept length as an exact fault detector.

On the tiny pair every draft is right by construction, so a cycle accepts all of them, always; one
wrong layer, position, shift or cache row shows as a number below that.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from kit.servers import ServerPool
from sglang_spec.models import Pair
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.models.tiny.plan import BOS, SPECIALS
from sglang_spec.server import Launch, Speculation

PROMPT = [BOS, *range(SPECIALS + 7, SPECIALS + 57)]
NEW = 81  # the prefill's token and 20 cycles of 4


@pytest.mark.parametrize("num_steps", [1, 3, 5])
def test_every_draft_of_the_tiny_pair_is_accepted(
    servers: ServerPool, tiny: Pair, num_steps: int
) -> None:
    speculation = Speculation(tiny.draft, num_steps, 1, num_steps + 1)
    client = servers.client(Launch(tiny.target, speculation))
    answer = client.generate(PROMPT, NEW, ignore_eos=True)
    assert list(answer.tokens) == Oracle(TINY).greedy(PROMPT, NEW)
    full_cycles = answer.correct_drafts[num_steps]
    assert sum(answer.correct_drafts) == full_cycles, answer.correct_drafts
    assert full_cycles == -(-(NEW - 1) // (num_steps + 1))


def test_a_wrong_capture_shows(servers: ServerPool, tiny: Pair, tmp_path: Path) -> None:
    """The control of the test above: the same draft, its first layer id off by one."""
    draft = tmp_path / "draft"
    shutil.copytree(tiny.draft, draft)
    config = json.loads((draft / "config.json").read_text())
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"][0] += 1
    (draft / "config.json").write_text(json.dumps(config))
    client = servers.client(Launch(tiny.target, Speculation(draft)))
    answer = client.generate(PROMPT, NEW, ignore_eos=True)
    assert sum(answer.correct_drafts[:3]) > 0, answer.correct_drafts


def test_the_server_says_what_it_runs(servers: ServerPool, tiny: Pair) -> None:
    launch = Launch(tiny.target, Speculation(tiny.draft))
    info = servers.client(launch).get("/server_info").json()
    shown = info["spec_hardening"]["provenance"]
    assert shown["version"] == "0.5.23"
    assert len(shown["patch_set"]) == 64
    assert not shown["changed"]
    assert info["version"] == f"0.5.23+spec.{shown['spec']}"
    first_lines = servers.server(launch).log.read_text().splitlines()
    assert any(shown["patch_set"][:12] in line[:300] for line in first_lines)
