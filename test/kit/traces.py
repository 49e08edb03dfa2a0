"""What a server holds at this moment that must be gone once it is killed."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from sglang_spec import process

SHARED_MEMORY = "/dev/shm/"


@dataclass(frozen=True)
class Traces:
    """Process ids, names in /dev/shm and listening TCP ports of a server and its workers."""

    pids: frozenset[int]
    segments: frozenset[str]
    ports: frozenset[int]

    @classmethod
    def of(cls, session: int) -> Traces:
        """Of every process in the session, workers whose parent is gone included."""
        members = process.session_members(session)
        segments: set[str] = set()
        ports: set[int] = set()
        for member in members:
            try:
                segments.update(_segments(member.pid))
                ports.update(
                    link.laddr.port
                    for link in member.net_connections("tcp")
                    if link.status == psutil.CONN_LISTEN
                )
            except (psutil.Error, OSError):
                continue  # it ended meanwhile
        return cls(frozenset(m.pid for m in members), frozenset(segments), frozenset(ports))

    def left(self) -> Traces:
        """The part of this that is still there."""
        return Traces(
            frozenset(pid for pid in self.pids if _alive(pid)),
            frozenset(name for name in self.segments if Path(name).exists()),
            frozenset(port for port in self.ports if not _free(port)),
        )

    def left_after(self, timeout: float) -> Traces:
        """The part that is still there after at most `timeout` seconds; empty is what one wants."""
        deadline = time.monotonic() + timeout
        while (left := self.left()) != NOTHING and time.monotonic() < deadline:
            time.sleep(0.1)
        return left


NOTHING = Traces(frozenset(), frozenset(), frozenset())


def _segments(pid: int) -> set[str]:
    """Files in /dev/shm that the process has mapped or open."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    found = {line.split(maxsplit=5)[5] for line in maps.splitlines() if SHARED_MEMORY in line}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(os.readlink(link))
        except OSError:
            continue
    return {name for name in found if name.startswith(SHARED_MEMORY) and "(deleted)" not in name}


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
