"""What this package does not offer: a named refusal instead of a bare "cannot import name".

The CUDA package of the same name has hundreds of operators. Code that asks for one of them on the
CPU should learn at once which operator it asked for and which package it is talking to. `from
sgl_kernel import X` falls back to the submodule `sgl_kernel.X`, so one finder at the end of the
import path answers both forms; plain attribute access is answered by `missing_attribute`.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from sgl_kernel.host import CUDA_REQUIREMENT

PACKAGE = "sgl_kernel"


def refusal(name: str) -> str:
    """The text every refusal carries: the name, this package, and where the name lives."""
    return (
        f"{PACKAGE}.{name} is not offered by the CPU package (sglang-kernel +cpu), which holds "
        f"only what EAGLE-3 decoding on the CPU calls; the CUDA package is {CUDA_REQUIREMENT}"
    )


def missing_attribute(name: str) -> AttributeError:
    """The error for `sgl_kernel.<name>`: an AttributeError, so that `hasattr` can probe."""
    return AttributeError(refusal(name), name=name, obj=sys.modules.get(PACKAGE))


class RefusalFinder(MetaPathFinder):
    """Last on `sys.meta_path`: turns a submodule nobody found into an ImportError that names it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != PACKAGE or not name or name.startswith("__"):
            return None
        # Named after the package, not after the submodule: an error with the submodule's own name
        # is swallowed by `from sgl_kernel import X` and replaced by the interpreter's text.
        raise ModuleNotFoundError(refusal(name), name=PACKAGE)


def install() -> None:
    """Put the finder last on the import path, once."""
    if not any(isinstance(finder, RefusalFinder) for finder in sys.meta_path):
        sys.meta_path.append(RefusalFinder())
