"""Drafts named by a hub id: found in the local cache, fetched by the parent, refused by name.

Each launch imports the engine anew: where the hub and its cache are is read while importing, so a
fork of the preloaded process would look for them where that one did.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from kit.checkpoints import copy, read_tensors, write_tensors
from kit.hub import COMMIT, Hub
from kit.launch_watch import Ended, watch
from kit.servers import LOGS
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Server, Speculation

# Ten seconds of imports for each of them; the cache is in the unit tests too.
full = pytest.mark.full

ID = "acme/tiny-eagle3"
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Cache:
    """A Hugging Face cache of our own, and the hub that fills it (None: there is no network)."""

    folder: Path
    hub: str | None = None

    def snapshot(self) -> Path:
        repository = self.folder / f"models--{ID.replace('/', '--')}"
        (repository / "refs").mkdir(parents=True, exist_ok=True)
        (repository / "refs/main").write_text(COMMIT)
        return repository / "snapshots" / COMMIT

    def server(self, target: Path) -> Server:
        environment = {"HF_HUB_CACHE": str(self.folder), "HF_HUB_OFFLINE": "1"}
        if self.hub is not None:
            online = {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0", "HF_ENDPOINT": self.hub}
            environment |= online
        launch = Launch(target, Speculation(Path(ID)), environment=environment)
        return Server(launch, LOGS / f"test-hub-{self.folder.parent.name}.log")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def hub(tiny: Pair) -> Iterator[Hub]:
    with Hub({ID: tiny.draft}) as hub:
        yield hub


def refused(server: Server) -> Ended:
    ended = watch(server)
    assert ended.returncode not in (0, None)
    assert not ended.engines, "the parent spawned no scheduler"
    assert "Load weight begin" not in ended.log
    return ended


def captured(server: Server) -> list[int]:
    (state,) = httpx.get(f"{server.url}/server_info", timeout=30).json()["internal_states"]
    return [slot["loop_index"] for slot in state["eagle3_capture"]["slots"]]


@full
def test_a_cached_draft_is_served(tiny: Pair, cache: Cache) -> None:
    shutil.copytree(tiny.draft, cache.snapshot())
    with cache.server(tiny.target) as server:
        server.wait_ready()
        assert captured(server) == [2, 4, 6]
        assert "fetching the weights" not in server.log.read_text()


@full
def test_a_draft_that_is_nowhere(tiny: Pair, cache: Cache) -> None:
    ended = refused(cache.server(tiny.target))
    assert "[draft-not-found]" in ended.log and f"'{ID}'" in ended.log
    assert "no such hub id in the local Hugging Face cache; download it first" in ended.log


@full
def test_a_config_whose_weights_cannot_be_fetched(tiny: Pair, cache: Cache) -> None:
    cache.snapshot().mkdir(parents=True)
    shutil.copy(tiny.draft / "config.json", cache.snapshot())
    ended = refused(cache.server(tiny.target))
    assert f"Draft contract: fetching the weights of {ID} to check them" in ended.log
    assert "[weights-missing]" in ended.log and str(cache.snapshot()) in ended.log


@full
def test_a_faulty_draft_is_named_by_its_file(tiny: Pair, cache: Cache) -> None:
    shutil.copytree(tiny.draft, cache.snapshot())
    config = cache.snapshot() / "config.json"
    text = config.read_text()
    config.write_text(text.replace("eagle_aux_hidden_state_layer_ids", "eagle_aux_layer_ids"))
    ended = refused(cache.server(tiny.target))
    assert "[ids-misspelt]" in ended.log and str(config) in ended.log


def test_a_draft_is_fetched_before_anything_loads(tiny: Pair, tmp_path: Path, hub: Hub) -> None:
    cache = Cache(tmp_path / "cache", hub.url)
    with cache.server(tiny.target) as server:
        server.wait_ready()
        assert captured(server) == [2, 4, 6]
        log = server.log.read_text()
    told = [f"fetching the weights of {ID}", "Draft contract: accepted", "Load weight begin"]
    assert [log.index(text) for text in told] == sorted(log.index(text) for text in told)
    assert hub.asked_for(WEIGHTS)


@full
def test_a_fetched_draft_that_is_cut_short(tiny: Pair, tmp_path: Path, hub: Hub) -> None:
    hub.spoil(ID, WEIGHTS, lambda held: held[: len(held) // 2])
    ended = refused(Cache(tmp_path / "cache", hub.url).server(tiny.target))
    assert "[weights-unreadable]" in ended.log and WEIGHTS in ended.log


@full
def test_a_hub_without_the_weights(tiny: Pair, tmp_path: Path, hub: Hub) -> None:
    hub.remove(ID, WEIGHTS)
    ended = refused(Cache(tmp_path / "cache", hub.url).server(tiny.target))
    assert "[weights-missing]" in ended.log


@full
def test_a_draft_in_shards_with_a_file_beside_the_index(tiny: Pair, tmp_path: Path) -> None:
    """The index comes along: without it the stray file would be taken for a part of the draft."""
    draft = copy(tiny.draft, tmp_path / "sharded")
    tensors = list(read_tensors(draft / WEIGHTS).items())
    (draft / WEIGHTS).unlink()
    parts = {"part-1.safetensors": tensors[::2], "part-2.safetensors": tensors[1::2]}
    for file, held in parts.items():
        write_tensors(draft / file, dict(held))
    write_tensors(draft / "stray.safetensors", dict(tensors[:1]))
    names = {name: file for file, held in parts.items() for name, _ in held}
    (draft / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": names}))
    with Hub({ID: draft}) as hub, Cache(tmp_path / "cache", hub.url).server(tiny.target) as server:
        server.wait_ready()
        assert captured(server) == [2, 4, 6]
