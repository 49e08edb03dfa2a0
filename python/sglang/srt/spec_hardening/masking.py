"""A server's arguments without the secrets in them, for whatever shows them to somebody.

Called by `ServerArgs.resolved_dict`, `prepare_server_args` and `Engine` (patch
`secrets-not-shown`). The server itself keeps the values. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MASK = "<redacted>"
FIELDS = ("api_key", "admin_api_key", "ssl_keyfile_password")
FLAGS = tuple("--" + name.replace("_", "-") for name in FIELDS)


def fields(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`arguments` by field name, each secret that is set masked; None stays, so absence is seen."""
    return {
        name: MASK if name in FIELDS and value is not None else value
        for name, value in arguments.items()
    }


def words(argv: Sequence[str]) -> list[str]:
    """`argv` with the value of each secret's flag masked, in a word of its own or after `=`."""
    told: list[str] = []
    masks_next = False
    for word in argv:
        name, joined, _ = word.partition("=")
        secret = _is_secret(name)
        if secret and joined:
            told.append(f"{name}={MASK}")
        else:
            told.append(MASK if masks_next else word)
        masks_next = secret and not joined
    return told


def _is_secret(name: str) -> bool:
    """Whether it is a secret's flag or an abbreviation of one, as argparse takes them."""
    return len(name) > len("--") and any(flag.startswith(name) for flag in FLAGS)
