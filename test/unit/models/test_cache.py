"""Entries of the cache appear whole or not at all, and are made once."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest
from sglang_spec.models import cache
from sglang_spec.models.cache import ModelError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_one(work: Path) -> None:
    (work / "weights").write_bytes(b"12345")


def slow(work: Path) -> None:
    with (work.parent / "builds").open("a") as log:
        log.write("x")
    time.sleep(0.3)
    write_one(work)


def obtain_slowly() -> None:
    cache.obtain("thing-1", slow, needed=1)


def test_builds_once_and_lists(folder: Path) -> None:
    calls = []
    for _ in range(2):
        path = cache.obtain("thing-1", lambda w: (calls.append(w), write_one(w)), needed=1)
    assert path == folder / "thing-1"
    assert len(calls) == 1
    assert cache.entries() == [cache.Entry("thing-1", path, 5)]


def test_failed_build_leaves_nothing(folder: Path) -> None:
    def broken(work: Path) -> None:
        write_one(work)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.obtain("thing-1", broken, needed=1)
    assert cache.entries() == []
    assert [p.name for p in folder.iterdir()] == [".lock-thing-1"]


def test_leftovers_of_a_killed_build_are_removed(folder: Path) -> None:
    leftover = folder / ".building-thing-1.abc"
    leftover.mkdir(parents=True)
    (leftover / "half").write_text("x")
    cache.obtain("thing-1", write_one, needed=1)
    assert not leftover.exists()


def test_two_processes_build_once(folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=obtain_slowly) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert (folder / "builds").read_text() == "x"


def test_too_little_space_names_both_numbers() -> None:
    with pytest.raises(ModelError, match=r"9000000000000 MB needed, \d+ MB free"):
        cache.obtain("thing-1", write_one, needed=9 * 10**18)
    assert cache.entries() == []


def test_cache_under_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    with pytest.raises(ModelError, match="cannot make the cache folder"):
        cache.obtain("thing-1", write_one, needed=1)


def test_root_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.root() == tmp_path / "sglang-spec" / "models"


def test_digest_ignores_key_order() -> None:
    assert cache.digest({"a": 1, "b": 2}) == cache.digest({"b": 2, "a": 1})
    assert cache.digest({"a": 1}) != cache.digest({"a": 2})
