"""Tiny checkpoints of DeepSeek-V3 and Kimi-K2.5: MLA, experts (INT4 too), the multimodal wrapper.

Random weights, but with a margin: the embedding dominates what the head reads, so every token has
one known successor in any precision, while attention and experts move the states of the layers far
enough for a wrong one to show. See `plan`.
"""

from sglang_spec.models.deepseek.build import deepseek_pair
from sglang_spec.models.deepseek.plan import PLANS, Plan

__all__ = ["PLANS", "Plan", "deepseek_pair"]
