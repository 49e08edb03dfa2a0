"""Ways to serve the tiny pair on a GPU, for `test/gpu/test_fidelity*.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sglang_spec.models import Pair, tiny_pair
from sglang_spec.models.tiny import TINY, TINY_HALF, Plan
from sglang_spec.server import Launch, Speculation

from kit import thinking

COMMON = (
    *("--mem-fraction-static", "0.8", "--max-total-tokens", "65536"),
    *("--context-length", "2048", "--enable-custom-logit-processor"),
)
RETRACT = {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "4"}
# With overlap plain decoding learns of each token one step late, so its penalties are no judge.
NO_OVERLAP = ("--disable-overlap-schedule",)


@dataclass(frozen=True)
class Setup:
    """One way to serve; no `numbers` (steps, topk, drafted tokens) is without speculation."""

    name: str
    plan: Plan = TINY
    numbers: tuple[int, int, int] | None = (3, 1, 4)
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    backend: str = "triton"

    def launch(self, *more: str, pairs: Mapping[Plan, Pair] | None = None) -> Launch:
        """In bfloat16, with `more` flags; of the plain tiny pairs unless others are given."""
        pair = pairs[self.plan] if pairs else tiny_pair(self.plan)
        flags = (*COMMON, "--attention-backend", self.backend, *more, *self.flags)
        speculation = Speculation(pair.draft, *self.numbers) if self.numbers else None
        return Launch(pair.target, speculation, "bfloat16", flags, self.environment)


PLAIN = Setup("plain", numbers=None, flags=NO_OVERLAP)
CHAIN = Setup("chain")
SOME_REJECTED = Setup("some-rejected", TINY_HALF)
TREE = Setup("tree", TINY_HALF, (3, 4, 10))
WITHOUT_OVERLAP = Setup("no-overlap", TINY_HALF, flags=NO_OVERLAP)
RETRACTED = Setup("retracted", environment=RETRACT)
# With these all servers reason; for `thinking_pairs`.
REASONING = (
    *("--max-running-requests", "64", "--cuda-graph-max-bs-decode", "16"),
    *thinking.PARSER,
)
FLASHINFER = Setup("flashinfer", TINY_HALF, backend="flashinfer")


def thinking_pairs(folder: Path) -> dict[Plan, Pair]:
    """The tiny pairs with words for reasoning and JSON, written to `folder`."""
    plans = enumerate((TINY, TINY_HALF))
    return {plan: thinking.thinking(tiny_pair(plan), folder / str(n)) for n, plan in plans}
