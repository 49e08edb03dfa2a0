"""Ways to serve with EAGLE3 that are worth a server of their own, as flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sglang_spec import host
from sglang_spec.models import Pair, embedded_pair, tiny_pair
from sglang_spec.models.tiny import TINY, TINY_HALF, Plan
from sglang_spec.server import Launch, Speculation

# Upstream asserts at every step that no KV slot is lost, and ends the server if one is.
STRICT = {"SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1"}
CHUNK = 256
SMALL_POOL = 8192  # tokens; a fraction of what `decode_checks.retraction` asks for


@dataclass(frozen=True)
class Setup:
    """One way to serve.

    Attributes:
        plan: of the tiny pair; None for the embedded pair, which has no oracle.
        largest_graph: the widest batch with a captured graph.
        running: the widest batch at all.
        tp: ranks; the embedded pair's heads are widened to what they divide.
        slow: kernels are compiled at its start, so it starts before the others.
    """

    name: str
    backend: str = "triton"
    flags: tuple[str, ...] = ()
    plan: Plan | None = TINY
    speculation: tuple[int, int, int] = (3, 1, 4)
    pool: int = 65536
    largest_graph: int = 128
    running: int = 160
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    tp: int = 1
    slow: bool = False

    def common(self) -> tuple[str, ...]:
        flags = (
            *("--max-total-tokens", str(self.pool), "--max-running-requests", str(self.running)),
            *("--context-length", "2048", "--chunked-prefill-size", str(CHUNK)),
            *(("--tp-size", str(self.tp)) if self.tp > 1 else ()),
        )
        if host.device() == "cpu":
            return flags
        # The fraction is only a bound: other servers on the same GPU grow while this one starts.
        return (
            *flags,
            *("--mem-fraction-static", "0.3", "--attention-backend", self.backend),
            *("--cuda-graph-max-bs-decode", str(self.largest_graph)),
        )

    @property
    def steps(self) -> int:
        return self.speculation[0]

    @property
    def topk(self) -> int:
        return self.speculation[1]

    def pair(self) -> Pair:
        if self.plan is not None:
            return tiny_pair(self.plan)
        return embedded_pair(heads={1: None, 2: "12/4", 4: "12/4", 8: "24/8"}[self.tp])

    def launches(self) -> list[Launch]:
        """All servers that a test of this setup asks: without an oracle, also the plain one."""
        return [self.launch(), self.plain()] if self.plan is None else [self.launch()]

    def launch(self) -> Launch:
        pair = self.pair()
        steps, topk, tokens = self.speculation
        return Launch(
            pair.target,
            Speculation(pair.draft, steps, topk, tokens),
            "bfloat16",
            (*self.common(), *self.flags),
            self.environment,
        )

    def plain(self) -> Launch:
        """The same without speculation."""
        launch = self.launch()
        return Launch(
            launch.model, None, launch.dtype, (*self.common(), *self.flags), self.environment
        )


TREE = (3, 4, 8)
# The scheduler admits more than the pool can hold, so that it has to retract.
OVERCOMMIT = ("--schedule-conservativeness", "0.1")


def of_backend(backend: str) -> list[Setup]:
    """What is worth running with every attention backend."""
    return [
        Setup(backend, backend),
        Setup(f"{backend}-no-graphs", backend, ("--disable-cuda-graph",)),
        Setup(f"{backend}-no-overlap", backend, ("--disable-overlap-schedule",)),
        Setup(f"{backend}-page-16", backend, ("--page-size", "16")),
        Setup(f"{backend}-tree", backend, speculation=TREE),
    ]


def once(backend: str) -> list[Setup]:
    """What does not depend on the backend, or costs too much to be run with each."""
    return [
        Setup(f"{backend}-some-rejected", backend, plan=TINY_HALF),
        Setup(f"{backend}-page-16-tree", backend, ("--page-size", "16"), speculation=TREE),
        Setup(
            f"{backend}-neither-graphs-nor-overlap",
            backend,
            ("--disable-cuda-graph", "--disable-overlap-schedule"),
            plan=TINY_HALF,
        ),
    ]


def small_pool(backend: str) -> Setup:
    """A pool that runs full, under upstream's own checks of it."""
    return Setup(
        f"{backend}-small-pool",
        backend,
        OVERCOMMIT,
        pool=SMALL_POOL,
        largest_graph=32,
        running=32,
        environment=STRICT,
    )
