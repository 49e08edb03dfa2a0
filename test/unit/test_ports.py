"""Ports for servers: nobody takes one between its choice and the server's bind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sglang_spec import process


def test_no_connection_is_given_such_a_port() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    if low < process.PORTS.stop and high >= process.PORTS.start:
        pytest.skip(f"this host gives ports from {low} to {high} to connections")
    for _ in range(20):
        assert not low <= process.free_port() <= high


def test_two_processes_are_given_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twelve ports each of two processes takes two, and one is held already."""
    first = process.free_port()
    room = range(first, first + 12)
    code = f"from sglang_spec import process; process.PORTS = range({room.start}, {room.stop})\n"
    code += "print(*[process.free_port() for _ in range(2)], flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout and other.stdin
        theirs = {int(word) for word in other.stdout.readline().split()}
        monkeypatch.setattr(process, "PORTS", room)
        ours = {process.free_port() for _ in range(2)}
        assert len(theirs | ours | {first}) == 5
        other.stdin.write("\n")
        other.stdin.close()
    assert other.returncode == 0
