"""The ways to speculate that are compared, each as the launch of a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .. import host
from ..server import Launch, Speculation
from .shape import Shape

OFF = "none"
STATIC = "static"
THRESHOLD = "threshold"
AUTO = "auto"
ADAPTIVE = "adaptive"
ALL = (OFF, STATIC, THRESHOLD, AUTO, ADAPTIVE)
# The same with the verify as a decode, which the triton backend alone can; measured if asked for.
STATIC_DECODE = "static-decode"
AUTO_DECODE = "auto-decode"
KNOWN = (*ALL, STATIC_DECODE, AUTO_DECODE)
# What `auto` is held against: the best that there is without a threshold.
RIVALS = (OFF, STATIC, ADAPTIVE)
# Of a GPU's memory, what may be taken by all who use it once a KV cache of given size is made.
SHARED_FRACTION = "0.96"
DISABLE = "--speculative-disable-batch-threshold"


@dataclass(frozen=True)
class Settings:
    """What all servers of a comparison have in common.

    `threshold` is N of the mode of that name; `kv_tokens` 0 leaves the size of the KV cache to the
    server; `extra` goes to every server as it is. `num_draft_tokens` None is those of a chain. `tp`
    are the ranks that a server's weights are spread over.
    """

    shape: Shape
    backend: str | None
    num_steps: int = 3
    threshold: int = 32
    most_requests: int = 128
    kv_tokens: int = 0
    dtype: str = "bfloat16"
    extra: tuple[str, ...] = ()
    topk: int = 1
    num_draft_tokens: int | None = None
    tp: int = 1


def launch(name: str, settings: Settings) -> Launch:
    """The server of mode `name`.

    Raises:
        ValueError: there is no such mode.
    """
    shape = settings.shape
    pair = shape.pair()
    speculation, flags = None, []
    if name != OFF:
        steps = settings.num_steps
        width = settings.num_draft_tokens or steps + 1
        speculation = Speculation(pair.draft, steps, settings.topk, width)
        flags = [*shape.spec_arguments, *_flags(name, settings)]
    return Launch(
        pair.target,
        speculation,
        settings.dtype,
        (*shape.arguments, *_common(settings), *flags, *settings.extra),
        dict(shape.environment),
    )


def measures_itself(launch: Launch) -> bool:
    """Whether the server measures its steps while it starts, so that others must not load the host.

    What it decides afterwards comes from that table.
    """
    return (DISABLE, "auto") in pairwise(launch.arguments)


def _flags(name: str, settings: Settings) -> Sequence[str]:
    decode = ("--speculative-verify-attention", "decode")
    known = {
        STATIC: (),
        THRESHOLD: (DISABLE, str(settings.threshold)),
        AUTO: (DISABLE, "auto"),
        ADAPTIVE: ("--speculative-adaptive",),
        STATIC_DECODE: decode,
        AUTO_DECODE: (DISABLE, "auto", *decode),
    }
    if name not in known:
        raise ValueError(f"mode {name}: known are {', '.join(KNOWN)}")
    return known[name]


def _common(settings: Settings) -> list[str]:
    """Explicit sizes: with speculation upstream's own default is 48 requests."""
    most = str(settings.most_requests)
    given = ["--max-running-requests", most, "--cuda-graph-max-bs-decode", most]
    given += ["--stream-interval", "8", "--sleep-on-idle"]
    if settings.kv_tokens:
        given += ["--max-total-tokens", str(settings.kv_tokens)]
        if host.device() == "cuda":
            # Servers that share a GPU each see the others' memory as used: a smaller fraction would
            # refuse whichever comes last, though it asks for no more than the others.
            given += ["--mem-fraction-static", SHARED_FRACTION]
    if settings.tp > 1:
        given += ["--tp-size", str(settings.tp)]
    if settings.backend:
        given += ["--attention-backend", settings.backend]
    return given
