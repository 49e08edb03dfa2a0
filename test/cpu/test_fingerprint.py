"""A server that finds a fingerprint beside its draft checks it in its self-test."""

from __future__ import annotations

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
    (state,) = httpx.get(f"{server.url}/server_info", timeout=30).json()["internal_states"]
    assert state["eagle3_capture"]["fingerprint"] == "2 of 2 prompts compared"
    assert "capture_fingerprint.json agrees in every slot" in server.log.read_text()


# Ids of the draft's config, and what the server says slot 0 is.
WRONG = {
    "off by one": ([4, 16, 28], "output of layer 4"),
    "embedding first": ([-1, 15, 27], "embedding"),
}


# Each row starts a server that only dies; the embedding is found by unit tests in every run.
@pytest.mark.parametrize(
    "name", ["off by one", pytest.param("embedding first", marks=pytest.mark.full)]
)
def test_wrong_capture_never_gets_ready(
    name: str, servers: ServerPool, embedded: Pair, marked: Path, tmp_path: Path
) -> None:
    """Off by one passes every check of configs and costs a few percent of accept length."""
    ids, is_now = WRONG[name]

    def edit(config: Config) -> None:
        config["eagle_config"][IDS] = ids

    draft = copy(marked, tmp_path / "draft", edit)
    mode = ("--speculative-contract", "report") if ids[0] < 0 else ()
    server = servers.start(Launch(embedded.target, Speculation(draft), arguments=mode), "marked")
    try:
        with pytest.raises(ServerError) as ended:
            server.wait_ready()
    finally:
        server.stop()
    was = "the draft was trained on the output of layer 3 there"
    assert f"slot 0 is the {is_now}, {was}" in str(ended.value)
