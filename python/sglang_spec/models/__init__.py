"""Model pairs that tests and demos run on: made here, cached outside git.

`embedded_pair()` is a small real model with a trained draft; `tiny_pair()` is right by
construction; `deepseek_pair()` has the classes and the kernels of DeepSeek-V3 and Kimi-K2.5.
Importing this package needs no torch; making a pair does.
"""

from sglang_spec.models.cache import ModelError
from sglang_spec.models.deepseek import deepseek_pair
from sglang_spec.models.embedded import embedded_pair, held_out
from sglang_spec.models.pair import Pair
from sglang_spec.models.tiny import tiny_pair

__all__ = ["ModelError", "Pair", "deepseek_pair", "embedded_pair", "held_out", "tiny_pair"]
