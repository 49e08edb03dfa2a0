"""Weights of the tiny target: a `LlamaForCausalLM` that computes the plan exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_spec.models.tiny import rotary
from sglang_spec.models.tiny.gates import Gates
from sglang_spec.models.tiny.heads import Read, attention
from sglang_spec.models.tiny.oracle import LOGIT_UNIT, SPECIAL_LOGIT
from sglang_spec.models.tiny.plan import (
    BITS,
    BOS,
    EOS,
    FAR_SHIFT,
    MAX_POSITIONS,
    NEAR_SHIFT,
    TARGET_FAULT,
    VOCABULARY,
    Plan,
    code,
)
from sglang_spec.models.tiny.stream import (
    HIDDEN,
    IDLE,
    NORM_WEIGHT,
    Stream,
    read_names,
    sum_name,
    target_stream,
)

if TYPE_CHECKING:
    import torch

NEURONS_PER_BIT = 32
# Per missing bit of the answer, and per missing thing on the way: far above ordinary tokens.
MISSING_LOGIT, FAULT_LOGIT = 120.0, 960.0


def config(plan: Plan) -> dict[str, Any]:
    """`config.json` of the target."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": BITS * NEURONS_PER_BIT,
        "num_hidden_layers": plan.layers,
        "num_attention_heads": 2 * BITS,
        "num_key_value_heads": BITS,
        "head_dim": rotary.HEAD_DIM,
        "vocab_size": VOCABULARY,
        **shared_config(),
    }


def shared_config() -> dict[str, Any]:
    """What target and draft have in common."""
    return {
        "max_position_embeddings": MAX_POSITIONS,
        # Small enough to vanish in float32 beside the mean square of 1/4.
        "rms_norm_eps": 1e-10,
        "rope_theta": rotary.THETA,
        "rope_parameters": {"rope_theta": rotary.THETA, "rope_type": "default"},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }


def weights(plan: Plan) -> dict[str, torch.Tensor]:
    """All tensors of the target by Hugging Face name; in bf16 all but q and k are exact."""
    import torch

    stream = target_stream(plan)
    state = {"model.embed_tokens.weight": _embedding(stream)}
    for layer in range(plan.layers):
        prefix = f"model.layers.{layer}"
        reads = _answer_reads(plan, stream) if layer == plan.levels else _sum_reads(layer, stream)
        projections = attention(
            reads,
            hidden=HIDDEN,
            width=HIDDEN,
            one=stream("one"),
            first=stream("first"),
            seed=f"target {plan.seed} {layer}",
        )
        state |= {f"{prefix}.self_attn.{name}": w for name, w in projections.items()}
        state |= _logic(stream, layer, final=layer == plan.levels).tensors(f"{prefix}.mlp")
        for norm in ("input_layernorm", "post_attention_layernorm"):
            state[f"{prefix}.{norm}.weight"] = torch.full((HIDDEN,), NORM_WEIGHT)
    state["model.norm.weight"] = torch.full((HIDDEN,), NORM_WEIGHT)
    state["lm_head.weight"] = head(stream, plan, TARGET_FAULT)
    return {name: weight.to(torch.bfloat16) for name, weight in state.items()}


def head(stream: Stream, plan: Plan, fault: int) -> torch.Tensor:
    """Output rows, [vocabulary, hidden]: bits of the answer compared with each token's value.

    If a bit of the answer is missing, or was on the way, the token `fault` wins over everything.
    """
    import torch

    rows = torch.zeros(VOCABULARY, HIDDEN)
    rows[:, stream("one")] = SPECIAL_LOGIT
    for value, token in enumerate(plan.shuffle):
        rows[token, stream("one")] = 0.0
        for bit in range(BITS):
            own = value >> bit & 1
            rows[token, stream("answer", bit, own)] = LOGIT_UNIT
            rows[token, stream("answer", bit, 1 - own)] = -LOGIT_UNIT
    rows[fault, stream("one")] += BITS * MISSING_LOGIT
    rows[fault, stream("fault")] = FAULT_LOGIT
    for bit in range(BITS):
        rows[fault, list(bit_values(stream, "answer", bit))] = -MISSING_LOGIT
    return rows


def _embedding(stream: Stream) -> torch.Tensor:
    import torch

    rows = torch.zeros(VOCABULARY, HIDDEN)
    for place in stream.ones:
        rows[:, stream(*place)] = 1.0
    for token in range(VOCABULARY):
        rows[token, stream("first" if token == BOS else "later")] = 1.0
        for bit in range(BITS):
            value = code(token) >> bit & 1
            rows[token, stream(sum_name(0), bit, value)] = 1.0
            rows[token, stream("token", bit, value)] = 1.0
    return rows


def bit_values(stream: Stream, name: str, bit: int) -> tuple[int, int]:
    """Dimensions of a bit's two values."""
    return stream(name, bit, 0), stream(name, bit, 1)


def bit_places(stream: Stream, name: str, bit: int) -> tuple[int, int, int]:
    """Dimensions of a three-state bit: 0, 1, idle."""
    return *bit_values(stream, name, bit), stream(name, bit, IDLE)


def _sum_reads(layer: int, stream: Stream) -> list[list[Read]]:
    """Layer l joins three windows of 3^l: the own, the one before it and the one before that."""
    step, own = int(3**layer), sum_name(layer)
    return [
        [
            Read(times * step, bit_values(stream, own, bit), bit_places(stream, name, bit))
            for times, name in zip((1, 2), read_names(layer), strict=True)
        ]
        for bit in range(BITS)
    ]


def _answer_reads(plan: Plan, stream: Stream) -> list[list[Read]]:
    """Key-value head k holds bit k of the row's token, for the two answer bits that need it."""
    table = []
    first, second = read_names(plan.levels)
    for bit in range(BITS):
        values = bit_values(stream, "token", bit)
        near, far = (bit - NEAR_SHIFT) % BITS, (bit - FAR_SHIFT) % BITS
        table.append(
            [
                Read(plan.near[near], values, bit_places(stream, first, near)),
                Read(plan.far[far], values, bit_places(stream, second, far)),
            ]
        )
    return table


def _logic(stream: Stream, layer: int, *, final: bool) -> Gates:
    """Xor of the sum and both reads, into the next sum or, in the final layer, into the answer."""
    gates = Gates(HIDDEN, BITS, NEURONS_PER_BIT, stream("one"))
    inputs = (sum_name(layer), *read_names(layer))
    result = "answer" if final else sum_name(layer + 1)
    for bit in range(BITS):
        for combination in range(8):
            values = [combination >> i & 1 for i in range(3)]
            places = [stream(name, bit, v) for name, v in zip(inputs, values, strict=True)]
            xor = values[0] ^ values[1] ^ values[2]
            # If a value is missing there is no result, and none of what should follow from it.
            effects = {stream(result, bit, xor): 1}
            if not final:
                effects[stream(result, bit, IDLE)] = -1
            gates.all_of(bit, places, effects)
        for name in inputs:
            gates.none_of(bit, bit_values(stream, name, bit), stream("fault"))
        for name in ("sum0", "sum1", *read_names(0), *read_names(1)):
            zero, one, idle = bit_places(stream, name, bit)
            if final and name == inputs[0]:
                # The answer takes its place among the ones.
                gates.drop(bit, zero)
                gates.drop(bit, one)
            else:
                gates.move(bit, zero, idle)
                gates.move(bit, one, idle)
    gates.move(0, stream("depth", layer), stream("depth", layer + 1))
    return gates
