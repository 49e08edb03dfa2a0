"""A host that is gone without a word: its power, its cable.

TCP says nothing of it: a rank that waits for one of that host waits for hours (seen: for as long as
it was watched). With keepalive the kernel ends the connection after some seconds, gloo raises in
the waiting rank, and its node ends by name as for any other failed rank.

Called by: `start.prove`, on launches of several nodes. Imports without torch.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

VARIABLE = "SGLANG_SPEC_PEER_TIMEOUT"
DEFAULT_S = 30.0
_PROBES = 3  # that go unanswered before a silent connection is over
_ADDRESS = re.compile(r"\[([0-9a-fA-F:.]+)\]:\d+")  # as gloo writes it


def limit() -> float:
    """Seconds without a sign of life after which a connection is over; 0: as the kernel likes.

    Raises:
        ValueError: the variable holds something else.
    """
    given = os.environ.get(VARIABLE, "")
    try:
        seconds = float(given) if given else DEFAULT_S
    except ValueError:
        seconds = -1.0
    if not (seconds == 0 or 1 <= seconds <= 86400):
        raise ValueError(f"{VARIABLE} = {given!r}: write seconds from 1 to 86400, or 0 for none")
    return seconds


def keep_alive(nnodes: int) -> int:
    """Put `limit` on each connection this process has to another host; how many they are."""
    seconds = limit()
    if nnodes < 2 or not seconds:
        return 0
    found = 0
    for connection in _connections():
        with connection:
            if _is_distant(connection):
                _put(connection, seconds)
                found += 1
    logger.info(
        "%d connections to other nodes: each ends after %g s without a sign of life (%s)",
        *(found, seconds, VARIABLE),
    )
    return found


def address_in(cause: str) -> str:
    """The other host's address in what a failed collective says, "" if it names none."""
    found = _ADDRESS.search(cause)
    try:
        return found[1] if found and not ipaddress.ip_address(found[1]).is_loopback else ""
    except ValueError:
        return ""


def _connections() -> Iterator[socket.socket]:
    """A duplicate of each socket of this process, whichever library made it."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        try:
            if not stat.S_ISSOCK(os.stat(entry).st_mode):
                continue
            yield socket.socket(fileno=os.dup(int(entry.name)))
        except OSError:
            continue  # closed in the meantime


def _is_distant(connection: socket.socket) -> bool:
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    if connection.type != socket.SOCK_STREAM:
        return False
    try:
        here, there = connection.getsockname()[0], connection.getpeername()[0]
    except OSError:
        return False  # it listens, or is not connected
    return bool(here != there)  # ranks of one host meet at one address


def _put(connection: socket.socket, seconds: float) -> None:
    every = max(1, int(seconds / (_PROBES + 1)))
    for option, value in (
        (socket.TCP_KEEPIDLE, every),
        (socket.TCP_KEEPINTVL, every),
        (socket.TCP_KEEPCNT, _PROBES),
        # What was sent and is not acknowledged counts too: keepalive is silent meanwhile.
        (socket.TCP_USER_TIMEOUT, int(seconds * 1000)),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
