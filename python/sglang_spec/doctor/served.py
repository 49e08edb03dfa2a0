"""What a running server says of one part of itself in `/server_info`."""

from __future__ import annotations

from typing import Any

import httpx


class NotSaid(Exception):
    """The server says nothing of it; the text tells why and what to do."""


def part(url: str, name: str, why_not: str, api_key: str | None = None) -> list[dict[str, Any]]:
    """`name` of `internal_states`, of each replica that has it.

    Raises:
        NotSaid: no answer, or none that has it: `why_not` says what the server is then.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        reply = httpx.get(f"{url.rstrip('/')}/server_info", headers=headers, timeout=30)
        reply.raise_for_status()
        states = reply.json()["internal_states"]
        found = [dict(state[name]) for state in states if state.get(name)]
    except (httpx.HTTPError, httpx.InvalidURL, KeyError, TypeError, ValueError) as error:
        raise NotSaid(f"{url}/server_info: {error!r}") from error
    if not found:
        raise NotSaid(f"{url} {why_not}")
    return found
