"""What the tiny DeepSeek checkpoints are: sizes, kinds, and the tokens they produce. No tensor.

Token t is followed by `successor(t)`, whatever stands before it: the rows of the head are those of
the embedding, in the order of a permutation. The draft's head holds the permutation applied twice,
so its first draft is right. Its later ones are not: its own state still stands for the token the
chain began with. Hence every cycle accepts one draft, and the accept length is exactly 2.

The sizes of heads (128 + 64, values of 128, a latent of 512) and the group of 32 weights are those
of the real models, because kernels are built for them; everything else is as small as they allow.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from functools import cached_property

from sglang_spec.models import cache
from sglang_spec.models.cache import ModelError
from sglang_spec.models.tiny.plan import SPECIALS, VOCABULARY

BUILDER_VERSION = 3

HIDDEN = 256
LAYERS = 6
DENSE_LAYERS = 1
HEADS = 8
Q_RANK, KV_RANK = 128, 512
NOPE, ROPE, VALUE = 128, 64, 128
DENSE_INNER, EXPERT_INNER = 512, 256
EXPERTS, EXPERTS_PER_TOKEN = 16, 4
GROUP = 32
# The positions of the plain context, and by how much YaRN stretches them.
POSITIONS, STRETCH = 4096, 2
# Captured before these layers run: the outputs of layers 1, 2 and 4.
LOOPS = (2, 3, 5)
MEDIA_TOKEN = 10
ACCEPT_LENGTH = 2

FAMILIES = ("kimi", "deepseek")
EXPERT_FORMATS = ("int4", "bfloat16")
DRAFTS = ("mla", "llama")


@dataclass(frozen=True)
class Plan:
    """One target; both of its drafts are made with it.

    Attributes:
        family: `kimi` is KimiK25ForConditionalGeneration around a DeepSeek-V3 language model,
            `deepseek` is DeepseekV3ForCausalLM with grouped experts.
        experts: `int4` packs them as compressed-tensors W4A16, `bfloat16` writes the very same
            numbers out; both compute the same function.
    """

    family: str = "kimi"
    experts: str = "int4"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.family not in FAMILIES or self.experts not in EXPERT_FORMATS:
            raise ModelError(
                f"no plan for {self.family!r} with {self.experts!r} experts; families are "
                f"{', '.join(FAMILIES)}, formats {', '.join(EXPERT_FORMATS)}"
            )

    @property
    def name(self) -> str:
        return self.family if self.experts == "int4" else f"{self.family}-bfloat16"

    @property
    def groups(self) -> int:
        """Groups of experts that routing chooses among first; Kimi has one."""
        return 1 if self.family == "kimi" else 4

    @cached_property
    def chain(self) -> tuple[int, ...]:
        """Every ordinary token once, each followed by its successor, the last by the first."""
        tokens = list(range(SPECIALS, VOCABULARY))
        random.Random(f"chain {self.seed}").shuffle(tokens)
        return tuple(tokens)

    @cached_property
    def successors(self) -> tuple[int, ...]:
        """The token that follows, by token; special ones are followed as ordinary ones are."""
        place = {token: index for index, token in enumerate(self.chain)}
        size = len(self.chain)
        ordinary = [self.chain[(place[t] + 1) % size] for t in range(SPECIALS, VOCABULARY)]
        return (*ordinary[:SPECIALS], *ordinary)

    def greedy(self, prompt: list[int], tokens: int) -> list[int]:
        """What a server must answer to `prompt`."""
        answer: list[int] = []
        last = prompt[-1]
        for _ in range(tokens):
            last = self.successors[last]
            answer.append(last)
        return answer

    def entry_name(self) -> str:
        """Cache entry of the checkpoints; new for another plan or another builder."""
        return f"{self.name}-{cache.digest(asdict(self) | {'builder': BUILDER_VERSION})}"


PLANS = {
    plan.name: plan
    for plan in (Plan(family, experts) for family in FAMILIES for experts in EXPERT_FORMATS)
}
