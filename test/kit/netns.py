"""Two hosts on one machine: network namespaces with a cable between them.

What runs in one sees its own loopback and the cable, nothing of this machine's network, and a
/dev/shm of its own: the engine takes ranks that share one for ranks of one host. Needs Linux, root
(CAP_SYS_ADMIN and CAP_NET_ADMIN) and the command `ip`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sglang_spec import process
from sglang_spec.server import Spawn

from .preloaded import Zygote

_CLONE_NEWNS = 0x00020000
_CLONE_NEWNET = 0x40000000
_MS_REC_PRIVATE = 0x4000 | 0x40000
_OWN = "/proc/thread-self/ns/net"
_NAMED = Path("/run/netns")


def enter(path: str) -> None:
    """Move the calling thread, and what it starts from here on, into a network namespace."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("setns", descriptor, _CLONE_NEWNET)
    finally:
        os.close(descriptor)


def become_host(path: str) -> None:
    """Move this process, which has one thread, into a network namespace and to its own /dev/shm."""
    enter(path)
    _call("unshare", _CLONE_NEWNS)
    _call("mount", b"none", b"/", None, _MS_REC_PRIVATE, None)
    _call("mount", b"shm", b"/dev/shm", b"tmpfs", 0, None)


def _call(name: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


@dataclass(frozen=True)
class Host:
    """One of the two. `cable` is its network interface, `address` the one that the other sees."""

    name: str
    cable: str
    address: str

    @property
    def path(self) -> str:
        return str(_NAMED / self.name)

    @property
    def _inside(self) -> tuple[str, ...]:
        """The words before a command that is to be started in here; it gets its own mounts."""
        own_shm = 'mount -t tmpfs shm /dev/shm && exec "$0" "$@"'
        return ("ip", "netns", "exec", self.name, "sh", "-c", own_shm)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Sockets that this thread makes are in the namespace; they stay there."""
        before = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        enter(self.path)
        try:
            yield
        finally:
            enter(f"/proc/self/fd/{before}")
            os.close(before)

    def spawn(self, zygote: Zygote | None) -> Spawn:
        """What `Server` starts its command with, in here."""

        def start(command: Sequence[str], log: Path, env: dict[str, str]) -> process.Child:
            if zygote is None:
                return process.spawn([*self._inside, *command], log, env)
            assert command[1] == "-m", command
            return zygote.start(command[2], command[3:], log, env, netns=self.path)

        return start

    def pull_the_cable(self) -> None:
        """Nothing gets through any more and nobody is told, as when a host loses its power."""
        _ip("-n", self.name, "link", "set", self.cable, "down")


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Gone afterwards, and what still runs in them has no network."""
    mark = f"spec{os.getpid()}"
    hosts = tuple(Host(f"{mark}-{n}", f"cable{n}", f"10.213.0.{n + 1}") for n in range(2))
    first, second = hosts
    try:
        for host in hosts:
            _ip("netns", "add", host.name)
        _ip(
            *("link", "add", first.cable, "netns", first.name, "type", "veth"),
            *("peer", "name", second.cable, "netns", second.name),
        )
        for host in hosts:
            _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", host.cable)
            for interface in ("lo", host.cable):
                _ip("-n", host.name, "link", "set", interface, "up")
        yield first, second
    finally:
        for host in hosts:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", host.name)


def why_none() -> str:
    """Why there cannot be two hosts here, "" if there can."""
    if shutil.which("ip") is None:
        return "two network namespaces need the command `ip` (iproute2)"
    try:
        with two_hosts() as (first, _), first.inside():
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        return f"two network namespaces need root (CAP_SYS_ADMIN, CAP_NET_ADMIN): {said.strip()}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)
