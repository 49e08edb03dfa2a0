"""The servers that a soak starts for itself, and what is known of the pair they serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from kit import decode_setups
from kit.decode_setups import Setup
from sglang_spec import host
from sglang_spec.models.tiny import TINY, TINY_HALF, Oracle
from sglang_spec.models.tiny.oracle import faults
from sglang_spec.models.tiny.plan import BOS, SPECIALS, VOCABULARY
from sglang_spec.server import Launch

from .judge import Rules
from .planner import Limits

PLANS = {"tiny": TINY, "tiny-half": TINY_HALF}
# Every step: no slot lost. Also: no page of a running request is free, none is free twice.
STRICT = {**decode_setups.STRICT, "SGLANG_CHECK_KV_PAGE_INVARIANTS": "1"}
# oneDNN and torch each keep the 1024 matrix products that were used last, one for each number of
# rows and shape of weights, 0.8 MB in all: a server grows by 800 MB over a thousand requests, and
# its heap is in pieces afterwards.
FEW_PRODUCTS = dict.fromkeys(("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"), "256")


@dataclass(frozen=True)
class Settings:
    """Of the server with speculation; the one without has the same, but for its pool.

    Attributes:
        pair: "tiny", "tiny-half" (a draft that knows every other token), "embedded".
        pool: KV slots; small, so that requests are retracted.
        running: the widest batch; `largest_graph` is smaller on a GPU, so both kinds are run.
        speculation: steps, topk, draft tokens.
        threshold: batch size from which speculation is off, 0 for never.
        arguments: further flags of the server with speculation.
    """

    pair: str = "tiny-half"
    backend: str = "triton"
    pool: int = 1536
    running: int = 16
    largest_graph: int = 12
    speculation: tuple[int, int, int] = (3, 1, 4)
    threshold: int = 0
    arguments: tuple[str, ...] = ()

    @classmethod
    def of_host(cls) -> Settings:
        """For a GPU a larger pool and more at once; as small against what is asked for."""
        return cls() if host.device() == "cpu" else cls(pool=8192, running=64, largest_graph=32)

    def written(self) -> dict[str, Any]:
        """As JSON has it, so that what was read compares equal."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Settings:
        known = {one.name for one in fields(cls)}
        lists = ("speculation", "arguments")
        found = {key: value for key, value in content.items() if key in known}
        made: dict[str, Any] = {k: tuple(v) if k in lists else v for k, v in found.items()}
        return cls(**made)

    def launches(self) -> tuple[Launch, Launch]:
        """With speculation, and without."""
        flags = [*decode_setups.OVERCOMMIT, *self.arguments]
        if self.threshold:
            flags += ["--speculative-disable-batch-threshold", str(self.threshold)]
        setup = Setup(
            f"soak-{self.pair}",
            self.backend,
            tuple(flags),
            PLANS.get(self.pair),
            self.speculation,
            self.pool,
            self.largest_graph,
            self.running,
            STRICT | (FEW_PRODUCTS if host.device() == "cpu" else {}),
        )
        plain = replace(setup, flags=(), pool=max(16384, 4 * self.pool), environment={})
        # The embedded pair has near-ties in bfloat16; in float32 it is exact.
        dtype = "bfloat16" if self.pair in PLANS else "float32"
        return replace(setup.launch(), dtype=dtype), replace(plain.plain(), dtype=dtype)

    def oracle(self) -> Oracle | None:
        return Oracle(PLANS[self.pair]) if self.pair in PLANS else None

    def limits(self) -> Limits:
        every = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
        # Fewer at once are what other tests are about; here they would take most of the time.
        most = [count for count in every if self.running // 8 <= count <= self.running]
        if self.pair in PLANS:
            return Limits(*(SPECIALS, VOCABULARY - 1, (BOS,)), at_once=tuple(most))
        return Limits(1000, 40000, (1,), 200, 48, tuple(most))

    def rules(self) -> Rules:
        oracle = self.oracle()
        if oracle is None:
            return Rules()
        steps, topk, _ = self.speculation
        if topk > 1 or self.threshold:
            return Rules(faults, overrun=steps)
        return Rules(faults, lambda prompt, tokens: chain(oracle, tokens, steps), steps)


def chain(oracle: Oracle, tokens: Sequence[int], steps: int) -> list[int]:
    """`oracle.accept_lengths` for an answer that is known; the last cycle may run past its end."""
    known = set(oracle.plan.draft_tokens)
    lengths, done = [], 1
    while done < len(tokens):
        drafted = tokens[done : done + steps]
        correct = next((i for i, token in enumerate(drafted) if token not in known), steps)
        lengths.append(correct + 1)
        done += correct + 1
    return lengths
