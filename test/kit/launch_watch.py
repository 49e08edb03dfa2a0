"""Watches a launch until it ends: its exit code, its log, and the processes it ever had."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil
from sglang_spec.server import Server

# Seconds of a processor: an engine process uses more before it ends, even one that fails at once.
_ESTABLISHED = 0.1


@dataclass(frozen=True)
class Ended:
    """`engines`: ids of the engine processes (schedulers, detokenizers) seen to be spawned."""

    returncode: int
    seconds: float
    log: str
    engines: frozenset[int]


def watch(server: Server, timeout: float = 600.0) -> Ended:
    """Block until the server ends (AssertionError after `timeout` seconds), then stop it."""
    began = time.monotonic()
    seen: set[int] = set()
    try:
        while server.returncode is None:
            assert time.monotonic() - began < timeout, server.log_tail()
            seen |= {pid for pid in engines(server.pid) if _used(pid) >= _ESTABLISHED}
            time.sleep(0.05)
        seconds = time.monotonic() - began
    finally:
        server.stop()
    log = server.log.read_text(errors="replace")
    return Ended(server.returncode, seconds, log, frozenset(seen))


def engines(pid: int) -> set[int]:
    """The descendants of a server that run Python: its scheduler and detokenizer once it is up.

    A command that the parent asks for facts of the host (lscpu and the like) is none of them. While
    such a command is being started it looks like its parent, for as long as the host's other work
    lets it wait, hence `watch` counts what has worked. The server itself is none either where `pid`
    is the guard around it.
    """
    try:
        root = psutil.Process(pid)
        if any("sglang_spec.guard" in word for word in root.cmdline()):
            root = next(iter(root.children()), root)
        family = root.children(recursive=True)
    except psutil.NoSuchProcess:
        return set()
    found = set()
    for child in family:
        try:
            if "python" in child.name():
                found.add(child.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def _used(pid: int) -> float:
    """Seconds of a processor that the process has used so far; 0 if it is gone."""
    try:
        used = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return used.user + used.system
