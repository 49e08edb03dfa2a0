"""What people read while a command runs: one line per step, on stderr only, so that stdout stays
data.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")
_EVERY_S = 2.0


def say(text: str) -> None:
    """One line on stderr, at once."""
    print(text, file=sys.stderr, flush=True)


def tracked(items: Sequence[_Item], what: str) -> Iterator[_Item]:
    """Walks `items`, with a line of progress whenever two seconds went by without one."""
    last = time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        if now - last >= _EVERY_S:
            say(f"  {what}: {done} of {len(items)}")
            last = now
        yield item
