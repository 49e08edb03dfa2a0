"""Shared memory that a run leaves is told from what a neighbour that is killed leaves."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import litter

HOLDER = """
import mmap, sys, time
with open("/dev/shm/" + sys.argv[1], "wb+") as file:
    file.truncate(4096)
    held = mmap.mmap(file.fileno(), 4096)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def names() -> Iterator[tuple[str, str]]:
    found = tuple(f"sgl_shm_test_{uuid.uuid4().hex[:8]}" for _ in range(2))
    try:
        yield found  # type: ignore[misc]
    finally:
        for name in found:
            (litter.SHARED / name).unlink(missing_ok=True)


def hold(name: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", HOLDER, name]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    return child


def test_a_killed_neighbours_segment_is_not_this_runs(
    names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(litter, "LOOK_EVERY", 0.05)
    watched = litter.Litter()
    own, other = hold(names[0]), hold(names[1])
    watched.of(own.pid)
    try:
        until = 200
        while names[1] not in watched._foreign and (until := until - 1):
            watched._over.wait(0.05)
    finally:
        for child in (own, other):
            child.kill()
            child.communicate()
    watched.close()
    assert Path(litter.SHARED, names[1]).exists()
    assert [path for path in watched.left(0.0) if "_test_" in path] == [f"/dev/shm/{names[0]}"]


def test_what_a_neighbour_still_holds_is_not_this_runs(names: tuple[str, str]) -> None:
    watched = litter.Litter()
    own, other = hold(names[0]), hold(names[1])
    watched.of(own.pid)
    try:
        own.kill()
        own.communicate()
        watched.close()
        left = watched.left(0.0)
    finally:
        other.kill()
        other.communicate()
    assert f"/dev/shm/{names[0]}" in left and f"/dev/shm/{names[1]}" not in left
