"""What every rank is doing, where its parent can read it even when the rank is dead or hangs.

One board per launch: a page of memory for each rank, shared through an anonymous file that the
launching process owns. A rank opens it through /proc, writes in place (no lock, no system call),
and a rank that is killed leaves its last words. Nothing has to be removed afterwards: the memory
goes when the last process that maps it goes. Linux only; elsewhere, and in a rank that cannot see
the launching process (another host), there is no board and nothing is recorded.

Times are seconds of CLOCK_MONOTONIC, which all processes of a host share.
"""

from __future__ import annotations

import ctypes
import fcntl
import logging
import mmap
import os
import time
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

from . import stages

logger = logging.getLogger(__name__)

PATH_VARIABLE = "SGLANG_SPEC_RECORD"
PAGE = 8192
TALLIES = 8  # that a page holds, see `watch.tallies`
MAX_RANKS = 255
_MAGIC = b"SGLSPEC1"


class Status(IntEnum):
    FREE = 0
    BUILDING = 1
    READY = 2
    FAILED = 3  # said so itself, in `cause`
    CLOSED = 4  # left on request


class _Header(ctypes.Structure):
    _fields_ = [
        ("magic", ctypes.c_char * 8),
        ("owner", ctypes.c_int32),
        ("ranks", ctypes.c_int32),
        ("embedded", ctypes.c_uint8),
        ("signal_owner", ctypes.c_uint8),
        ("launched", ctypes.c_uint8),
        ("_pad", ctypes.c_uint8),
    ]


class Rank(ctypes.Structure):
    """One rank's page. Text is UTF-8, cut to the field; set `status` last.

    `pending_since` is when the oldest verify that is out was launched, 0 if none is. `alarm` says
    why speculation is degraded, empty if it is not; `group`, `tally_at` and `tally` are written and
    read by `watch.tallies`.
    """

    pid: int
    status: int
    stage: int
    was_ready: int
    part: int
    entered: float
    deadline: float
    failed_at: float
    pending_since: float
    last_decode: float
    launched: int
    completed: int
    label: bytes
    cause: bytes
    traceback: bytes
    group: int
    tally_at: ctypes.Array[ctypes.c_uint64]
    tally: ctypes.Array[ctypes.c_uint64]
    alarm: bytes

    _fields_ = [
        ("pid", ctypes.c_int32),
        ("status", ctypes.c_uint8),
        ("stage", ctypes.c_uint8),
        ("was_ready", ctypes.c_uint8),
        ("part", ctypes.c_uint8),
        ("entered", ctypes.c_double),
        ("deadline", ctypes.c_double),
        ("failed_at", ctypes.c_double),
        ("pending_since", ctypes.c_double),
        ("last_decode", ctypes.c_double),
        ("launched", ctypes.c_uint64),
        ("completed", ctypes.c_uint64),
        ("label", ctypes.c_char * 40),
        ("cause", ctypes.c_char * 640),
        ("traceback", ctypes.c_char * 3200),
        ("group", ctypes.c_uint32),
        ("tally_at", ctypes.c_uint64 * TALLIES),
        ("tally", ctypes.c_uint64 * TALLIES),
        ("alarm", ctypes.c_char * 480),
    ]

    @property
    def name(self) -> str:
        return self.label.decode("utf-8", "replace") or "rank ?"

    @property
    def stage_name(self) -> str:
        return stages.ALL[self.stage].name

    @property
    def place(self) -> str:
        """The stage, and the part of the cycle if a cycle has begun in it."""
        part = f" ({stages.CYCLE[self.part - 1].name})" if self.part else ""
        return self.stage_name + part

    def enter(self, name: str) -> None:
        now = time.monotonic()
        limit = stages.limit_of(name)
        self.deadline = 0.0
        self.stage = stages.INDEX[name]
        self.part = 0
        self.entered = now
        self.deadline = now + limit if limit else 0.0

    def raise_alarm(self, reason: str) -> None:
        """Say why speculation is degraded; an empty reason takes it back."""
        self.alarm = _cut(reason, 480)

    def fail(self, cause: str, traceback: str) -> None:
        """The rank's last words; the first failure stays."""
        if self.status == Status.FAILED:
            return
        self.cause = _cut(" ".join(cause.split()), 640)
        self.traceback = _cut(traceback, 3200, keep_end=True)
        self.failed_at = time.monotonic()
        self.deadline = 0.0
        self.status = Status.FAILED


class Board:
    """All ranks of one launch. Made by the launching process, opened by its ranks."""

    def __init__(self, memory: mmap.mmap, path: str, fd: int) -> None:
        self._memory = memory
        self._fd = fd
        self.path = path
        self.header = _Header.from_buffer(memory, 0)

    @classmethod
    def create(cls, embedded: bool = False, signal_owner: bool = True) -> Board:
        """A new board, its path in the environment for the processes started from here on."""
        fd = os.memfd_create("sglang-construction-record", os.MFD_CLOEXEC)
        os.ftruncate(fd, PAGE * (MAX_RANKS + 1))
        board = cls(mmap.mmap(fd, PAGE * (MAX_RANKS + 1)), f"/proc/{os.getpid()}/fd/{fd}", fd)
        header = board.header
        header.owner, header.embedded, header.signal_owner = os.getpid(), embedded, signal_owner
        header.magic = _MAGIC
        os.environ[PATH_VARIABLE] = board.path
        return board

    @classmethod
    def open(cls, path: str) -> Board:
        """The board at `path`; OSError if it is gone or not one."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        board = cls(mmap.mmap(fd, PAGE * (MAX_RANKS + 1)), path, fd)
        if board.header.magic != _MAGIC:
            raise OSError(f"{path} holds no record of a launch")
        return board

    def claim(self, label: str) -> Rank:
        """The next free page, for this process."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            number = self.header.ranks
            if number >= MAX_RANKS:
                raise OSError(f"{self.path} has no room for more than {MAX_RANKS} ranks")
            rank = self._page(number)
            rank.pid, rank.label = os.getpid(), _cut(label, 40)
            rank.status = Status.BUILDING
            self.header.ranks = number + 1
            return rank
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def ranks(self) -> Iterator[Rank]:
        return (self._page(number) for number in range(self.header.ranks))

    def of_pid(self, pid: int | None) -> Rank | None:
        return next((rank for rank in self.ranks() if rank.pid == pid), None)

    def _page(self, number: int) -> Rank:
        return Rank.from_buffer(self._memory, PAGE * (number + 1))


def from_environment() -> Board | None:
    """The board of the launch that this process belongs to, or None where there is none."""
    path = os.environ.get(PATH_VARIABLE)
    if not path:
        return None
    try:
        return Board.open(path)
    except OSError as error:
        logger.warning("no record of this rank for its parent: %s", error)
        return None


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def _cut(text: str, size: int, keep_end: bool = False) -> bytes:
    raw = text.encode("utf-8", "replace").replace(b"\0", b" ")
    return raw[-(size - 1) :] if keep_end else raw[: size - 1]
