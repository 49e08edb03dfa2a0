"""Our CPU operators in a process that has the CUDA package of the same name: for parity tests.

Both packages are called `sgl_kernel`, and SGLang takes whichever is imported. Here ours is imported
under that name, all its modules are then taken out of `sys.modules`, and what was there before is
put back; the modules keep working, since they hold references to each other.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType

NAME = "sgl_kernel"
SOURCE = Path(__file__).resolve().parents[2] / "sgl-kernel" / "src"
OVERRIDE = "SGLANG_KERNEL_ALLOW_CPU_ON_CUDA"


@lru_cache(maxsize=1)
def load() -> ModuleType:
    """Our package, once a process; `sys.modules` and the import path are as before.

    Raises:
        ImportError: the checkout holds no `sgl-kernel/src`.
    """
    present = sys.modules.get(NAME)
    if present is not None and getattr(present, "__version__", "").endswith("+cpu"):
        return present
    with _set_aside():
        ours = importlib.import_module(NAME)
    if not ours.__version__.endswith("+cpu"):
        raise ImportError(f"{NAME} came from {ours.__file__}, expected {SOURCE}")
    return ours


@contextmanager
def _set_aside() -> Iterator[None]:
    """No `sgl_kernel` is loaded and ours is first on the path; undone at the end."""
    theirs = _loaded()
    for name in theirs:
        del sys.modules[name]
    finders, allowed = list(sys.meta_path), os.environ.get(OVERRIDE)
    sys.path.insert(0, str(SOURCE))
    os.environ[OVERRIDE] = "1"
    try:
        yield
    finally:
        sys.path.remove(str(SOURCE))
        if allowed is None:
            del os.environ[OVERRIDE]
        else:
            os.environ[OVERRIDE] = allowed
        # Ours answers for every `sgl_kernel.X` that nobody has; the CUDA package must not hear it.
        sys.meta_path[:] = finders
        for name in _loaded():
            del sys.modules[name]
        sys.modules.update(theirs)


def _loaded() -> dict[str, ModuleType]:
    return {
        name: module
        for name, module in sys.modules.items()
        if name == NAME or name.startswith(f"{NAME}.")
    }
