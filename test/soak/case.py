"""One request of a soak, and the file that holds a failing few of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = "sglang-spec-soak-1"


class CaseError(RuntimeError):
    """A file that holds no cases; the text names it."""


@dataclass(frozen=True)
class Case:
    """What is sent, and when the client leaves.

    Attributes:
        new: tokens asked for.
        sampling: parameters besides `max_new_tokens`.
        stream: tokens are read as they come.
        leave: "" to the end; "abort" asks the server to, "disconnect" hangs up. Streams only.
        leave_after: tokens seen before that; 0 leaves at once.
        logprobs: how many top log-probabilities are asked for.
    """

    number: int
    prompt: tuple[int, ...]
    new: int
    sampling: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0})
    stream: bool = False
    leave: str = ""
    leave_after: int = 0
    logprobs: int = 0

    @property
    def greedy(self) -> bool:
        """Whether the answer is decided by the prompt."""
        return self.sampling.get("temperature", 1) == 0 or self.sampling.get("top_k") == 1

    @property
    def stops(self) -> tuple[int, ...]:
        return tuple(self.sampling.get("stop_token_ids", ()))

    def cut(self, tokens: Sequence[int]) -> list[int]:
        """Tokens of an endless answer that this request gets: up to its stop token or number."""
        found = list(tokens[: self.new])
        ends = [index for index, token in enumerate(found) if token in self.stops]
        return found[: ends[0] + 1] if ends else found


@dataclass(frozen=True)
class Failing:
    """Requests that failed together: enough to send them again.

    Attributes:
        settings: of the servers, as `Settings.written` gives them.
        at_once: requests in flight.
        said: what was found, one line each.
    """

    seed: int
    round: int
    at_once: int
    settings: Mapping[str, Any]
    cases: tuple[Case, ...]
    said: tuple[str, ...] = ()

    def write(self, file: Path) -> None:
        content = asdict(self)
        cases = content.pop("cases")
        head = json.dumps({"format": FORMAT, **content}, indent=1)[:-2]
        lines = ",\n  ".join(json.dumps(case) for case in cases)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'{head},\n "cases": [\n  {lines}\n ]\n}}\n')

    @classmethod
    def read(cls, file: Path) -> Failing:
        """Raises CaseError where the file is absent or of another format."""
        try:
            content = json.loads(file.read_text())
            if content.pop("format") != FORMAT:
                raise CaseError(f"{file}: not of format {FORMAT}")
            cases = tuple(
                Case(**{**case, "prompt": tuple(case["prompt"])}) for case in content.pop("cases")
            )
            return cls(**{**content, "cases": cases, "said": tuple(content["said"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CaseError(f"{file}: not a file of failing requests ({error!r})") from error
