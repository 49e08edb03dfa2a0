"""Exact logic in a SwiGLU MLP: places are read as true (1) or false (0), effects are added.

`down(silu(gate(x)) * up(x))` with `up(x) = 1` and gates that land on 0, or on at least 32 away from
it: there SiLU is the identity or nothing, to float32's last digit. A conjunction uses the
difference of two neurons, which is flat around 1, so that rounding errors are not passed on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SHARP = 64.0
STRICT = 8  # a mixture of values, as blurred attention brings, counts as no value


class Gates:
    """Fills the three matrices of an MLP, one block of neurons per bit.

    Blocks are as wide as the share of one rank at tensor parallel 8, so each bit lives on one rank.
    """

    def __init__(self, hidden: int, blocks: int, width: int, one: int) -> None:
        import torch

        self.gate = torch.zeros(blocks * width, hidden)
        self.up = torch.zeros(blocks * width, hidden)
        self.down = torch.zeros(hidden, blocks * width)
        self._one, self._width = one, width
        self._used = [0] * blocks

    def all_of(self, block: int, places: Sequence[int], effects: Mapping[int, float]) -> None:
        """If all `places` are 1, adds `effects` (place: amount)."""
        almost = STRICT * len(places) - 1
        for threshold, slope in ((almost, 2.0), (almost + 0.5, -2.0)):
            neuron = self._neuron(block)
            self.gate[neuron, list(places)] = STRICT * SHARP
            self.gate[neuron, self._one] += -threshold * SHARP
            for place, amount in effects.items():
                self.down[place, neuron] = slope * amount / SHARP

    def none_of(self, block: int, places: Sequence[int], goal: int) -> None:
        """If all `places` are 0, adds 1 to `goal`."""
        neuron = self._neuron(block)
        self.gate[neuron, list(places)] = -2 * SHARP
        self.gate[neuron, self._one] += SHARP
        self.down[goal, neuron] = 1 / SHARP

    def move(self, block: int, source: int, goal: int) -> None:
        """Takes whatever is at `source` and adds it to `goal`."""
        neuron = self.drop(block, source)
        self.down[goal, neuron] = 1 / SHARP

    def drop(self, block: int, source: int) -> int:
        """Takes whatever is at `source`; returns the neuron."""
        neuron = self._neuron(block)
        self.gate[neuron, source] = SHARP
        self.down[source, neuron] = -1 / SHARP
        return neuron

    def _neuron(self, block: int) -> int:
        place = self._used[block]
        if place == self._width:
            raise ValueError(f"block {block} has more than {self._width} neurons")
        self._used[block] += 1
        neuron = block * self._width + place
        self.up[neuron, self._one] = 1.0
        return neuron

    def tensors(self, prefix: str) -> dict[str, torch.Tensor]:
        """The weights by Hugging Face name: `<prefix>.gate_proj.weight` and so on."""
        parts = {"gate_proj": self.gate, "up_proj": self.up, "down_proj": self.down}
        return {f"{prefix}.{name}.weight": weight for name, weight in parts.items()}
