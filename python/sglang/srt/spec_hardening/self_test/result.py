"""What the self-test found, as `/server_info` and the log show it. Imports without torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """`PROVEN` by decoding; `UNPROVEN`: not tried, the reason says why; `FAILED`: never served."""

    PROVEN = "proven"
    UNPROVEN = "unproven"
    FAILED = "failed"


class SelfTestError(RuntimeError):
    """The rank cannot decode, or not well enough; the text says what was seen and what to check."""


@dataclass(frozen=True)
class Result:
    """`accept_length` counts the bonus token; `modes` are the names of the cases that ran and
    `left_out` those that did not, with the reason; `seconds` is the wall time of all of it."""

    state: State
    reason: str = ""
    seconds: float = 0.0
    accept_length: float | None = None
    cycles: int = 0
    modes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "state": str(self.state),
            "modes": list(self.modes),
            "left_out": list(self.left_out),
        }

    @property
    def line(self) -> str:
        if self.state is not State.PROVEN:
            return f"speculative self-test: {self.state}: {self.reason}"
        accept = "" if self.accept_length is None else f", accept length {self.accept_length:.2f}"
        out = f"; left out: {'; '.join(self.left_out)}" if self.left_out else ""
        return (
            f"speculative self-test: proven in {self.seconds:.1f} s ({', '.join(self.modes)}; "
            f"{self.cycles} verify cycles{accept}){out}"
        )
