"""Where the requests with fields are, for as long as a batch stays the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from sglang.srt.spec_hardening.fidelity.fields import Fields
from sglang.srt.spec_hardening.fidelity.ledger import Ledger, Line
from sglang.srt.spec_hardening.fidelity.lines import Lines
from sglang.srt.spec_hardening.fidelity.penalties import Terms

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req


@dataclass
class Plan:
    """The requests of a batch that have fields.

    Attributes:
        reqs, retractions: the batch that this is for.
        held: the requests with fields and their lines.
        fields: what they ask for.
        rows: int64 [R] on the device, places of these requests; None: the whole batch.
        lines: where they are in the ledger.
        short: requests that may be too short to end, and their minimum; the host may be late.
        most: at least as many tokens as any of their lists has.
    """

    reqs: list[Req]
    retractions: list[int]
    held: list[tuple[Req, Line]]
    fields: Sequence[Fields]
    rows: torch.Tensor | None
    lines: Lines
    ledger: Ledger
    short: list[tuple[Req, int]]
    most: int = 0

    def __post_init__(self) -> None:
        self.most = max((line.most for _, line in self.held), default=0)
        self.penalties = any(one.has_penalty for one in self.fields)

    @cached_property
    def terms(self) -> Terms:
        """What the torch code reads of the fields."""
        return Terms(self.fields, self.rows, self.lines, self.ledger)

    @cached_property
    def places(self) -> torch.Tensor:
        """`rows` where the whole batch has to be named as well."""
        if self.rows is not None:
            return self.rows
        return torch.arange(len(self.held), device=self.ledger.device)

    def bans(self) -> bool:
        """Whether the step may have to ban something; what is over stays over."""
        self.short = [(req, least) for req, least in self.short if len(req.output_ids) < least]
        return bool(self.short)
