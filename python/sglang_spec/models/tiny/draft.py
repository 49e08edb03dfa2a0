"""Weights of the tiny draft: a `LlamaForCausalLMEagle3` that is always right about its target.

Row p of the draft holds the target's state at position p and the embedding of token p + 1. From
both it makes the state at position p + 1 and the answer for token p + 2, in the format that `fc`
makes of captured layers, so a step can follow a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_spec.models.tiny import rotary
from sglang_spec.models.tiny.gates import Gates
from sglang_spec.models.tiny.heads import Read, attention
from sglang_spec.models.tiny.plan import (
    BITS,
    CODES,
    DRAFT_FAULT,
    FAR_SHIFT,
    NEAR_SHIFT,
    SPECIALS,
    VOCABULARY,
    Plan,
)
from sglang_spec.models.tiny.stream import (
    HIDDEN,
    IDLE,
    NORM_WEIGHT,
    Stream,
    draft_stream,
    sum_name,
    target_stream,
)
from sglang_spec.models.tiny.target import bit_places, bit_values, head, shared_config

if TYPE_CHECKING:
    import torch

NEURONS_PER_BIT = 88
QUERIES_PER_HEAD = 4
SLOTS = 3
READS = ("read1", "read2", "leaving", "entering")


def config(plan: Plan) -> dict[str, Any]:
    """`config.json` of the draft."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": BITS * NEURONS_PER_BIT,
        "num_hidden_layers": 1,
        "num_attention_heads": QUERIES_PER_HEAD * BITS,
        "num_key_value_heads": BITS,
        "head_dim": rotary.HEAD_DIM,
        "vocab_size": VOCABULARY,
        "draft_vocab_size": SPECIALS + plan.draft_codes,
        **shared_config(),
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": list(plan.capture),
            "use_aux_hidden_state": True,
        },
    }


def weights(plan: Plan) -> dict[str, torch.Tensor]:
    """All tensors of the draft by checkpoint name; bf16, the vocabulary map int64 and bool.

    The embedding is the target's and not part of the checkpoint.
    """
    import torch

    stream, target = draft_stream(), target_stream(plan)
    state = {"fc.weight": _fusion(plan, stream, target)}
    projections = attention(
        _reads(plan, stream, target),
        hidden=HIDDEN,
        width=2 * HIDDEN,
        one=HIDDEN + stream("one"),
        first=HIDDEN + stream("first"),
        seed=f"draft {plan.seed}",
    )
    state |= {f"midlayer.self_attn.{name}": weight for name, weight in projections.items()}
    state |= _logic(stream).tensors("midlayer.mlp")
    for norm in ("midlayer.input_layernorm", "midlayer.hidden_norm", "norm"):
        state[f"{norm}.weight"] = torch.full((HIDDEN,), NORM_WEIGHT)
    state["midlayer.post_attention_layernorm.weight"] = torch.full((HIDDEN,), NORM_WEIGHT)
    kept = torch.tensor(plan.draft_tokens)
    state["lm_head.weight"] = head(stream, plan, DRAFT_FAULT)[kept]
    exact = {name: weight.to(torch.bfloat16) for name, weight in state.items()}
    return exact | (_vocabulary_map(kept) if plan.draft_codes < CODES else {})


def _vocabulary_map(kept: torch.Tensor) -> dict[str, torch.Tensor]:
    """`d2t`, target id minus draft id, [draft vocabulary]; `t2d`, known or not, [vocabulary]."""
    import torch

    known = torch.zeros(VOCABULARY, dtype=torch.bool)
    known[kept] = True
    return {"d2t": kept - torch.arange(len(kept)), "t2d": known}


def _fusion(plan: Plan, stream: Stream, target: Stream) -> torch.Tensor:
    """`fc` [hidden, 3 * hidden]: one part of the state from each of the three captured layers.

    The token from the first, BOS from the second, the sum from the third. Each slot must also
    bring the mark of its own layer, else the draft answers `DRAFT_FAULT`.
    """
    import torch

    fc = torch.zeros(HIDDEN, SLOTS * HIDDEN)
    for slot, layer in enumerate(plan.capture):
        fc[stream("slot", slot), slot * HIDDEN + target("depth", layer + 1)] = 1.0
    for place in stream.ones:
        if place[0] != "slot":
            fc[stream(*place), target("one")] = 1.0
    for name in ("first", "later"):
        fc[stream(name), HIDDEN + target(name)] = 1.0
    complete = sum_name(plan.levels)
    for bit in range(BITS):
        for value in (0, 1):
            fc[stream("token", bit, value), target("token", bit, value)] = 1.0
            fc[stream("sum", bit, value), 2 * HIDDEN + target(complete, bit, value)] = 1.0
    return fc


def _reads(plan: Plan, stream: Stream, target: Stream) -> list[list[Read]]:
    """Distances are one less than the target's: row p already speaks of position p + 1."""
    table = []
    for bit in range(BITS):
        near, far = (bit - NEAR_SHIFT) % BITS, (bit - FAR_SHIFT) % BITS
        state = HIDDEN + stream("token", bit, 0), HIDDEN + stream("token", bit, 1)
        embedding = target("token", bit, 0), target("token", bit, 1)
        table.append(
            [
                Read(plan.near[near] - 1, state, bit_places(stream, "read1", near)),
                Read(plan.far[far] - 1, state, bit_places(stream, "read2", far)),
                Read(plan.window - 1, state, bit_places(stream, "leaving", bit)),
                Read(0, embedding, bit_places(stream, "entering", bit)),
            ]
        )
    return table


def _logic(stream: Stream) -> Gates:
    gates = Gates(HIDDEN, BITS, NEURONS_PER_BIT, stream("one"))
    slots = [stream("slot", slot) for slot in range(SLOTS)]
    for bit in range(BITS):
        for combination in range(32):
            total, read1, read2, leaving, entering = (combination >> i & 1 for i in range(5))
            values = zip(("sum", *READS), (total, read1, read2, leaving, entering), strict=True)
            places = [stream(name, bit, value) for name, value in values]
            new_sum = total ^ leaving ^ entering
            effects = {
                stream("sum", bit, new_sum): 1.0,
                stream("sum", bit, IDLE): -1.0,
                stream("answer", bit, new_sum ^ read1 ^ read2): 1.0,
                stream("answer", bit, IDLE): -1.0,
                stream("token", bit, entering): 1.0,
            }
            gates.all_of(bit, places + slots, effects)
        for name in ("sum", *READS):
            gates.none_of(bit, bit_values(stream, name, bit), stream("fault"))
        for name in ("sum", "answer", *READS):
            zero, one, idle = bit_places(stream, name, bit)
            gates.move(bit, zero, idle)
            gates.move(bit, one, idle)
        for value in (0, 1):
            gates.drop(bit, stream("token", bit, value))
    for slot in slots:
        gates.none_of(0, [slot], stream("fault"))
    gates.move(0, stream("first"), stream("later"))
    return gates
