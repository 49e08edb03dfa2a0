"""The sockets by which the process that launches talks to its ranks, when a launch has failed.

What is left of a front end whose launch failed is garbage in a cycle. A context of pyzmq knows its
sockets by weak references, which the collector clears before it finalizes anything: the context
finds no socket to close, and waits for ever for the ones that are still open. So the next full
collection would hang the program that got the exception, in the middle of its work or at its exit.

Called by: `TokenizerManager.init_ipc_channels` (patch `engine-dead-rank`).
Imports without torch.
"""

from __future__ import annotations

import sys
from typing import Any

import zmq
import zmq.asyncio


class Context(zmq.asyncio.Context):
    """zmq's for asyncio, that closes its sockets when it is collected together with them. What they
    have not sent by then is dropped: whoever it was for is not waited for."""

    # Said here: an attribute that the class does not know is an option of zmq's to it.
    _kept: list[zmq.asyncio.Socket]

    def __init__(self, io_threads: int = 1) -> None:
        super().__init__(io_threads)
        self._kept = []

    def socket(self, *args: Any, **kwargs: Any) -> zmq.asyncio.Socket:
        made = super().socket(*args, **kwargs)
        self._kept.append(made)
        return made

    def __del__(self) -> None:
        # At the end of the interpreter zmq leaves all to the operating system.
        if not sys.is_finalizing():
            for one in getattr(self, "_kept", ()):  # its constructor may have raised
                one.close(linger=0)
        super().__del__()
