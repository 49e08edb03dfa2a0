"""What the tiny pair computes: every number that decides its tokens, and no tensor.

Both the weights and the plain-Python oracle follow this plan. In short, with `code(t)` the eight
bits of a token and `^` a bitwise exclusive or:

- `S(p)` is the xor of the codes of the last `window` tokens up to position p.
- Bit h of `y(p)` is bit h of `S(p)`, xor bit `h + 3` of the token `near[h]` positions back, xor
  bit `h + 5` of the token `far[h]` positions back (bit numbers modulo 8; before the start: 0).
- The next token is a fixed shuffle of the 256 values of `y(p)`.

Every map in the chain is a bijection in every one of its arguments, so replacing any one ordinary
token of the window always changes the next token.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from functools import cached_property

from sglang_spec.models import cache
from sglang_spec.models.cache import ModelError

BUILDER_VERSION = 5

BITS = 8
CODES = 1 << BITS
SPECIALS = 64
VOCABULARY = SPECIALS + CODES
BOS, EOS, UNKNOWN, TARGET_FAULT, DRAFT_FAULT = range(5)

NEAR_SHIFT, FAR_SHIFT = 3, 5
MAX_POSITIONS = 4096


@dataclass(frozen=True)
class Plan:
    """Parameters of a tiny pair.

    Attributes:
        levels: layers that widen the window, each by three; the target has one layer more.
        capture: ids of the target layers whose output the draft reads, in increasing order; the
            last is the layer where the window is complete.
        near, far: for each bit, the distance of the two tokens it reads besides the window.
        draft_codes: ordinary tokens the draft can propose; 256 means the full vocabulary, without
            a map, as a checkpoint with `draft_vocab_size == vocab_size` has it.
        seed: of the shuffle, of the draft's vocabulary and of where values lie in a head.

    Raises:
        ModelError: the parameters are at odds with each other.
    """

    levels: int = 6
    capture: tuple[int, int, int] = (1, 3, 5)
    near: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9)
    far: tuple[int, ...] = (10, 14, 20, 30, 45, 67, 100, 150)
    draft_codes: int = CODES
    seed: int = 0

    def __post_init__(self) -> None:
        low, middle, high = self.capture
        if not 0 <= low < middle < high == self.levels - 1:
            raise ModelError(
                f"capture {self.capture}: ids must increase and end at {self.levels - 1}, "
                "where the window is complete"
            )
        distances = self.near + self.far
        if len(self.near) != BITS or len(self.far) != BITS or len(set(distances)) != 2 * BITS:
            raise ModelError(f"near and far must be {BITS} distances each, all different")
        if min(distances) < 2 or max(distances) >= self.window:
            raise ModelError(f"near and far distances must be in 2 … {self.window - 1}")
        if not 0 < self.draft_codes <= CODES or self.draft_codes % BITS:
            raise ModelError(f"draft_codes must be a multiple of {BITS}, at most {CODES}")

    @property
    def layers(self) -> int:
        """Decoder layers of the target: the levels, and the one that reads near and far."""
        return self.levels + 1

    @property
    def window(self) -> int:
        """Tokens that the sum covers, the current one included."""
        return int(3**self.levels)

    @property
    def reduced(self) -> bool:
        """Whether the draft has a vocabulary of its own."""
        return self.draft_codes < CODES

    @cached_property
    def shuffle(self) -> tuple[int, ...]:
        """Token that follows each of the 256 values of y."""
        tokens = list(range(SPECIALS, VOCABULARY))
        random.Random(f"shuffle {self.seed}").shuffle(tokens)
        return tuple(tokens)

    @cached_property
    def draft_tokens(self) -> tuple[int, ...]:
        """Target ids of the draft's vocabulary, in the draft's order: specials, then ordinary."""
        ordinary = range(SPECIALS, VOCABULARY)
        kept = random.Random(f"draft {self.seed}").sample(ordinary, self.draft_codes)
        return (*range(SPECIALS), *sorted(kept))

    def entry_name(self) -> str:
        """Cache entry of the pair; new for another plan or another builder."""
        kind = "tiny-half" if self.reduced else "tiny"
        return f"{kind}-{cache.digest(asdict(self) | {'builder': BUILDER_VERSION})}"


def code(token: int) -> int:
    """The bits a token brings into sums; BOS brings none.

    Special tokens share codes with ordinary ones, so only ordinary tokens are told apart for sure.
    """
    return token - SPECIALS if token >= SPECIALS else token


TINY = Plan()
TINY_HALF = Plan(draft_codes=CODES // 2)
