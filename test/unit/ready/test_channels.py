"""What a failed launch leaves behind can be collected, and does not keep its process from the end.

Each in a process of its own: what these guard against is a wait inside of the collector.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULE = ROOT / "python/sglang/srt/spec_hardening/channels.py"  # its package would take seconds

# A manager in a cycle, one message to a rank that was there and is gone, and nobody who closes.
PROGRAM = """
import asyncio, gc, runpy, sys, zmq, zmq.asyncio
Context = runpy.run_path(sys.argv[2])["Context"]

class Manager:
    def __init__(self):
        context = Context(2)
        self.incoming = context.socket(zmq.PULL)
        self.incoming.bind(f"ipc://{sys.argv[1]}/in")
        self.outgoing = context.socket(zmq.PUSH)
        self.outgoing.connect(f"ipc://{sys.argv[1]}/out")
        self.me = self

async def send(manager):
    await manager.outgoing.send(b"1" * 1000)
    try:
        await asyncio.wait_for(manager.incoming.recv(), 0.1)
    except TimeoutError:
        pass

gc.disable()
manager = Manager()
if "used" in sys.argv[3:]:
    asyncio.run(send(manager))
if "kept" not in sys.argv[3:]:
    del manager
if "collected" in sys.argv[3:]:
    gc.collect()
print("last line")
"""


@pytest.mark.parametrize("used", [(), ("used",)], ids=["new", "used"])
@pytest.mark.parametrize(
    "left", [("collected",), ("kept", "collected"), ("kept",), ()], ids=" ".join
)
def test_sockets_that_nobody_closed_hold_nobody(
    tmp_path: Path, left: tuple[str, ...], used: tuple[str, ...]
) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(MODULE), *left, *used]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "last line\n", "")
