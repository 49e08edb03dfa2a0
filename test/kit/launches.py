"""Counts the operations that torch runs: what would each be a launch on a GPU; and the kernels."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from torch.utils._python_dispatch import TorchDispatchMode

# These look at memory in another way, or ask for some.
FREE = frozenset(
    {
        "_reshape_alias",
        "_unsafe_view",
        "alias",
        "as_strided",
        "detach",
        "diagonal",
        "empty",
        "expand",
        "lift_fresh",
        "new_empty",
        "permute",
        "select",
        "slice",
        "split",
        "squeeze",
        "t",
        "transpose",
        "unbind",
        "unsqueeze",
        "view",
    }
)


class Launches(TorchDispatchMode):
    """What runs in its context: `total`, and `by_name`."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self.by_name.total()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name not in FREE:
            self.by_name[name] += 1
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def as_on_a_gpu(seen: Launches) -> Iterator[None]:
    """New books take the kernels, whose launches are counted in `seen`; nothing is computed."""
    from sglang.srt.spec_hardening.fidelity import fused, kernel, steps

    class Counted:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            def launch(*_: Any, **__: Any) -> None:
                seen.by_name[self._name] += 1

            return launch

    with (
        mock.patch.object(kernel, "judge", Counted("judge")),
        mock.patch.object(kernel, "count", Counted("count")),
        mock.patch.object(steps, "on", lambda _: fused.FusedStep),
    ):
        yield
