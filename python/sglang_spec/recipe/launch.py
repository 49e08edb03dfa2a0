"""What only the host that starts a recipe can tell: folders that are not there, a port in use."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

from .problem import Problem
from .sections import Recipe


def impossible(recipe: Recipe) -> Iterator[Problem]:
    """Why this start would fail, minutes after it began."""
    yield from _folders(recipe)
    yield from _port(recipe)


def _folders(recipe: Recipe) -> Iterator[Problem]:
    """Paths that can be no names of the hub and lead nowhere."""
    for key, path in (
        ("model.path", recipe.model.path),
        ("draft.path", recipe.draft.path if recipe.draft else None),
    ):
        if path is not None and path.startswith(("/", "./", "../")) and not Path(path).exists():
            remedy = "it is not there; write the folder of the weights, or a name of the hub"
            yield Problem("not-there", recipe.file, key, path, remedy)


def _port(recipe: Recipe) -> Iterator[Problem]:
    host, port = recipe.listen.host, recipe.listen.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        remedy = f"{error.strerror}; write an address of this host"
        yield Problem("host", recipe.file, "listen.host", host, remedy)
        return
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            one.bind(address)
            one.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                remedy = f"something listens there already (`ss -ltnp 'sport = :{port}'` says what)"
                yield Problem("port-in-use", recipe.file, "listen.port", port, remedy)
            else:
                remedy = f"{error.strerror}; write an address of this host"
                yield Problem("host", recipe.file, "listen.host", host, remedy)
