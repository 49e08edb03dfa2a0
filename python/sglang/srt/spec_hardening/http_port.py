"""The port a server answers on: refused before anything is loaded if it is taken, and the end of
the server if it is lost while it loads.

Upstream looks at its port only once the model is loaded, and then waits, behind a bind that failed,
for a warm-up that asks whoever has the port.

Called by: `launch_server` and `_setup_and_run_http_server` of `srt/entrypoints/http_server.py`
(patch `port-before-loading`).
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import time
from typing import Any

import psutil
import uvicorn

from . import death

logger = logging.getLogger(__name__)

# A server that is being stopped may hold its port a little longer. The variable is upstream's, for
# the ports inside of a server.
PATIENCE = "SGLANG_WAIT_PORT_TIMEOUT"
DEFAULT_S = 5.0


class PortError(OSError):
    """A server cannot listen where it was told to; the text names host, port, flag and remedy."""


def check_launch(server_args: Any) -> None:
    """PortError if this launch could not listen now, before it loads anything.

    Not looked at: a node without a front end, which serves without its health port, and front ends
    that are other programs (Rust, the gRPC package), which may share a port.
    """
    from sglang.srt.arg_groups.overrides import resolving_view
    from sglang.srt.environ import envs

    cfg = resolving_view(server_args)
    if cfg.node_rank or cfg.smg_grpc_mode or cfg.grpc_mode or envs.SGLANG_RUST_SERVER.get():
        return
    # Granian shares its port with other listeners that share theirs.
    check(cfg.host, cfg.port, "--port", shared=bool(cfg.enable_http2))
    if cfg.grpc_port is not None:
        check(cfg.host, cfg.grpc_port, "--grpc-port")


def check(host: str | None, port: int, flag: str, shared: bool = False) -> None:
    """PortError if a server could not bind `port`, for `SGLANG_WAIT_PORT_TIMEOUT` seconds."""
    patience = float(os.environ.get(PATIENCE, DEFAULT_S))
    deadline = time.monotonic() + patience
    while True:
        error = _try(host, port, shared)
        if error is None:
            return
        if error.errno != errno.EADDRINUSE or time.monotonic() >= deadline:
            raise PortError(error.errno, _words(host, port, flag, error)) from error
        time.sleep(0.2)


class Server(uvicorn.Server):
    """uvicorn's, that ends the process and all that it started where it cannot listen.

    Uvicorn would shut the application down first, and that waits for a warm-up to which nobody
    will answer.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        lifespan = self.lifespan
        shutdown = lifespan.shutdown

        async def shutdown_or_end() -> None:
            if not self.started:
                host, port = self.config.host, self.config.port
                error = _try(host, port) or OSError("uvicorn says why, above")
                death.leave(_words(host, port, "--port", error))
            await shutdown()

        lifespan.shutdown = shutdown_or_end
        await super().startup(sockets)


def _try(host: str | None, port: int, shared: bool = False) -> OSError | None:
    """Bind as asyncio and uvloop do, and let go; what that raised. It is not listened to, so nobody
    who asks meanwhile is answered."""
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                one = socket.socket(family, kind, protocol)
            except OSError:
                continue  # a family that this machine does not have, as uvloop takes it
            with one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if shared:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.bind(address)
    except OSError as error:
        return error
    return None


def _words(host: str | None, port: int, flag: str, error: OSError) -> str:
    said = f"the server cannot listen on host {host!r}, port {port} ({flag}): "
    if isinstance(error, socket.gaierror):
        return said + f"no such host ({error.strerror}); correct --host"
    if error.errno == errno.EADDRINUSE:
        return said + f"{_holder(port)} has it; stop that, or choose another {flag}"
    if error.errno == errno.EADDRNOTAVAIL:
        return said + "this machine has no such address; correct --host"
    if error.errno == errno.EACCES:
        return said + f"not allowed for this user; choose a {flag} of 1024 or more"
    return said + f"{error}; correct --host or {flag}"


def _holder(port: int) -> str:
    """Who listens there, as far as this user may see."""
    try:
        for one in psutil.net_connections("tcp"):
            listens = one.status == psutil.CONN_LISTEN
            if listens and one.pid and one.laddr and one.laddr.port == port:
                return f"process {one.pid} ({psutil.Process(one.pid).name()})"
    except psutil.Error:
        pass
    return "another process"
