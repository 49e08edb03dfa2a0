"""Whether the ranks accept the same numbers of drafts, seen without a message between them.

Every rank leaves in its page of the launch's record how many drafts were accepted in each `EVERY`
verify batches, with the number of the last of them; `SLOTS` such sums stay, so that a difference
that has passed is forgotten. Ranks that decode the same batches have equal sums at equal numbers.
Only ranks of one host are compared. Imports without torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ..record import TALLIES

EVERY = 16
SLOTS = TALLIES


class Page(Protocol):
    """A rank's page in the record (`record.Rank`)."""

    group: int
    # Arrays of `SLOTS` unsigned integers.
    tally_at: Any
    tally: Any

    @property
    def name(self) -> str: ...


class Tally:
    """Writes the sums of one rank."""

    def __init__(self, page: Page, group: int) -> None:
        """`group` is equal in ranks that decode the same batches; 0 is none."""
        self._page = page
        self._batches = 0
        self._sum = 0
        for slot in range(SLOTS):
            page.tally_at[slot] = 0
        page.group = group

    def add(self, correct_drafts: Sequence[int]) -> bool:
        """One verified batch; whether a sum was written."""
        self._batches += 1
        self._sum += sum(correct_drafts)
        if self._batches % EVERY:
            return False
        slot = self._batches // EVERY % SLOTS
        # A reader that comes in between sees no number there.
        self._page.tally_at[slot] = 0
        self._page.tally[slot] = self._sum
        self._page.tally_at[slot] = self._batches
        self._sum = 0
        return True


def unequal(pages: Iterable[Page], group: int) -> str | None:
    """Which ranks of `group` have other sums than the first of them, and where; None if equal."""
    members = [page for page in pages if page.group == group]
    if len(members) < 2:
        return None
    first, *others = [(page, sums(page)) for page in members]
    for page, own in others:
        for last in sorted(first[1].keys() & own.keys()):
            if first[1][last] != own[last]:
                return (
                    f"in verify batches {last - EVERY + 1} to {last} {first[0].name} accepted "
                    f"{first[1][last]} drafts and {page.name} {own[last]}"
                )
    return None


def sums(page: Page) -> dict[int, int]:
    """The sums in a page by the number of their last batch; none that is being written."""
    found = {}
    for slot in range(SLOTS):
        last, value = page.tally_at[slot], page.tally[slot]
        if last and page.tally_at[slot] == last:
            found[int(last)] = int(value)
    return found
