"""The tiny pair: a target and a draft that are right by construction.

Every drafted token is accepted, so accept length is exactly steps + 1, and every fault of capture,
position, cache or vocabulary shows as a known number or a known token. See `plan` for what it
computes and `oracle` for what a server must answer.
"""

from sglang_spec.models.tiny.build import tiny_pair
from sglang_spec.models.tiny.oracle import Oracle, faults
from sglang_spec.models.tiny.plan import TINY, TINY_HALF, Plan

__all__ = ["TINY", "TINY_HALF", "Oracle", "Plan", "faults", "tiny_pair"]
