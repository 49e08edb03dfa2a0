"""When the parts of a decode batch begin and end, on the stream they run on.

Marks are events on an accelerator, so that nothing waits while the batches run, and the host's
clock on a CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from .cells import Lap


class Stopwatch:
    """Marks moments of one device; `seconds` between two of them may be asked after `wait`."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._module = None if device == "cpu" else torch.get_device_module(device)

    def mark(self) -> Any:
        if self._module is None:
            return time.perf_counter()
        event = self._module.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        if self._module is not None:
            self._module.synchronize()

    def passed(self, mark: Any) -> bool:
        """Whether the device is past a mark, so that `seconds` to it needs no `wait`."""
        return self._module is None or bool(mark.query())

    def seconds(self, begun: Any, ended: Any) -> float:
        if self._module is None:
            return float(ended - begun)
        return float(begun.elapsed_time(ended)) / 1e3

    def around(self, call: Callable[..., Any], name: str, lap: Callable[[], Lap | None]) -> Any:
        """`call`, its begin and end noted under `name` in the lap that is under way, if one is."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begun = self.mark()
            result = call(*args, **kwargs)
            if (under_way := lap()) is not None:
                under_way.parts[name] = (begun, self.mark())
            return result

        return timed
