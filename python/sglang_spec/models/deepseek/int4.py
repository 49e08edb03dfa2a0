"""INT4 weights as compressed-tensors packs them: symmetric, in groups, eight to an int32.

A tensor `w` of [rows, columns] becomes three: `w_packed` [rows, columns / 8] int32, where element i
of eight neighbours holds bits 4i to 4i + 3 of its value plus 8; `w_scale` [rows, columns / group]
bfloat16; and `w_shape`, the two numbers of the shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

BITS = 4
PER_WORD = 32 // BITS
OFFSET = 1 << (BITS - 1)


@dataclass(frozen=True)
class Quantized:
    """Values [rows, columns] in -8 … 7 (int8) and scales [rows, columns / group] (bfloat16)."""

    values: torch.Tensor
    scales: torch.Tensor

    def plain(self) -> torch.Tensor:
        """The weights these stand for, in bfloat16; exact if every product fits its 8 bits."""
        import torch

        rows, columns = self.values.shape
        grouped = self.values.float().reshape(rows, self.scales.shape[1], -1)
        return (grouped * self.scales.float()[:, :, None]).reshape(rows, columns).to(torch.bfloat16)

    def packed(self) -> dict[str, torch.Tensor]:
        """The three tensors of a checkpoint, by the suffix of their names."""
        import torch

        words = (self.values.to(torch.int64) + OFFSET).reshape(self.values.shape[0], -1, PER_WORD)
        shifts = torch.arange(PER_WORD) * BITS
        joined = (words << shifts).sum(-1)
        return {
            "weight_packed": torch.where(joined < 1 << 31, joined, joined - (1 << 32)).to(
                torch.int32
            ),
            "weight_scale": self.scales,
            "weight_shape": torch.tensor(list(self.values.shape), dtype=torch.int32),
        }


def random_weights(
    rows: int, columns: int, group: int, size: float, dice: torch.Generator
) -> Quantized:
    """Random weights of a standard deviation near `size`.

    Scales have four bits, values three and a sign: their product is exact in bfloat16, so a server
    that unpacks them and one that reads them written out hold the same numbers.
    """
    import math

    import torch

    values = torch.randint(1 - OFFSET, OFFSET, (rows, columns), generator=dice, dtype=torch.int8)
    # Uniform in -7 … 7 has a standard deviation of 4.3; mantissas 8 … 15 have a mean of 11.5.
    unit = 2.0 ** round(math.log2(size / (4.3 * 11.5)))
    mantissas = torch.randint(8, 16, (rows, columns // group), generator=dice)
    return Quantized(values, (mantissas * unit).to(torch.bfloat16))


def config(group: int, ignore: list[str]) -> dict[str, Any]:
    """`quantization_config` of a checkpoint whose other linear layers match `ignore`."""
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "kv_cache_scheme": None,
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "input_activations": None,
                "output_activations": None,
                "weights": {
                    "num_bits": BITS,
                    "type": "int",
                    "symmetric": True,
                    "strategy": "group",
                    "group_size": group,
                    "dynamic": False,
                    "actorder": None,
                },
            }
        },
        "ignore": ignore,
    }
