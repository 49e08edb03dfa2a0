"""A server that finds a fingerprint beside its draft checks it in its self-test."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from kit.checkpoints import Config, copy
from kit.faults import IDS
from kit.servers import ServerPool, spawner
from sglang_spec.capture import fingerprint
from sglang_spec.capture.dump import open_dump
from sglang_spec.capture.extract import extract, plan
from sglang_spec.capture.prompts import read_prompts
from sglang_spec.hardening.fingerprint import NAME
from sglang_spec.models import Pair
from sglang_spec.models.embedded import held_out
from sglang_spec.server import Launch, ServerError, Speculation


@pytest.fixture(scope="module")
def marked(servers: ServerPool, embedded: Pair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained draft with the fingerprint of its training layers beside it."""
    folder = tmp_path_factory.mktemp("marked")
    prompts = list(read_prompts(held_out(), embedded.target, 64))[:2]
    every, training = folder / "every", folder / "training"
    spawn = spawner(servers.zygote)
    extract(plan(embedded.target, None, None), prompts, every, spawn=spawn)
    extract(plan(embedded.target, embedded.draft, None), prompts, training, spawn=spawn)
    draft = copy(embedded.draft, folder / "draft")
    fingerprint.write(open_dump(training), open_dump(every), draft)
    return draft


def test_right_capture_is_proven(servers: ServerPool, embedded: Pair, marked: Path) -> None:
    server = servers.server(Launch(embedded.target, Speculation(marked)))
    (state,) = httpx.get(f"{server.url}/server_info", timeout=120).json()["internal_states"]
    assert state["eagle3_capture"]["fingerprint"] == "2 of 2 prompts compared"
    assert "capture_fingerprint.json agrees in every slot" in server.log.read_text()


@dataclass(frozen=True)
class Wrong:
    """A capture that is not what the draft was trained on, and what the server says of slot 0.

    Attributes:
        ids: of the draft's config; what it was trained on is [3, 15, 27].
        order: of the slots in training. No config tells it: the target captures by depth.
    """

    ids: tuple[int, int, int] = (3, 15, 27)
    order: tuple[int, int, int] = (0, 1, 2)
    is_now: str = "output of layer 3"
    was: str = "output of layer 3"


WRONG = {
    "off by one": Wrong(ids=(4, 16, 28), is_now="output of layer 4"),
    "embedding first": Wrong(ids=(-1, 15, 27), is_now="embedding"),
    "two slots swapped": Wrong(order=(1, 0, 2), was="output of layer 15"),
    "reversed": Wrong(order=(2, 1, 0), was="output of layer 27"),
}


# Each row starts a server that only dies; the others are found by unit tests in every run.
@pytest.mark.parametrize(
    "name",
    ["off by one", *(pytest.param(n, marks=pytest.mark.full) for n in WRONG if n != "off by one")],
)
def test_wrong_capture_never_gets_ready(
    name: str, servers: ServerPool, embedded: Pair, marked: Path, tmp_path: Path
) -> None:
    """Off by one passes every check of configs and costs a few percent of accept length."""
    wrong = WRONG[name]

    def edit(config: Config) -> None:
        config["eagle_config"][IDS] = list(wrong.ids)

    draft = copy(marked, tmp_path / "draft", edit)
    _reorder(draft / NAME, wrong.order)
    mode = ("--speculative-contract", "report") if wrong.ids[0] < 0 else ()
    server = servers.start(Launch(embedded.target, Speculation(draft), arguments=mode), "marked")
    try:
        with pytest.raises(ServerError) as ended:
            server.wait_ready()
    finally:
        server.stop()
    says = f"slot 0 is the {wrong.is_now}, the draft was trained on the {wrong.was} there"
    assert says in str(ended.value)


def _reorder(path: Path, order: tuple[int, ...]) -> None:
    """The file that a trainer writes whose slots stand in this order."""
    held = json.loads(path.read_text())
    for prompt in held["prompts"]:
        prompt["slots"] = [prompt["slots"][slot] for slot in order]
    path.unlink()
    path.write_text(json.dumps(held))
