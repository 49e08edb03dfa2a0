"""The embedded pair in float32, where speculation must not change a single token.

Most tests that compare answers ask the same two servers, so these are started once: plain decoding,
and EAGLE3 with a chain of three.
"""

from __future__ import annotations

from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation

NUM_STEPS = 3
CHUNK = 96  # small, so that prompts of some hundred tokens are prefilled in several
# With overlap scheduling plain decoding learns of each token one step late, so its penalties and
# processors are no judge. Speculation on a CPU runs without overlap in any case.
FLAGS = (
    *("--context-length", "1024", "--chunked-prefill-size", str(CHUNK)),
    *("--enable-custom-logit-processor", "--disable-overlap-schedule"),
)


def plain(pair: Pair) -> Launch:
    """Without speculation."""
    return Launch(pair.target, None, "float32", FLAGS)


def speculating(pair: Pair, *skip: str) -> Launch:
    """With EAGLE3; `skip` are flags that plain SGLang does not know."""
    speculation = Speculation(pair.draft, NUM_STEPS, 1, NUM_STEPS + 1)
    return Launch(pair.target, speculation, "float32", (*FLAGS, *skip))


def launches(pair: Pair) -> dict[bool, Launch]:
    """Both, by whether they speculate. In float32 the self-test would cost more than most tests."""
    return {False: plain(pair), True: speculating(pair, "--skip-speculative-self-test")}
