"""Which of our own modules does a patched file call, and which do those need in turn?"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from .uses import OWN_MODULE, import_statements


def own_files(sources: Iterable[bytes], package: Path) -> list[Path]:
    """Files of our package (at `package`) that the sources import, with all those need."""
    waiting = {name for source in sources for name in own_imports(source, "")}
    found: set[Path] = set()
    while waiting:
        name = waiting.pop()
        for path in _files_of(name, package):
            if path not in found:
                found.add(path)
                waiting |= own_imports(path.read_bytes(), _module_of(path, package))
    return sorted(found)


def own_imports(source: bytes, module: str) -> set[str]:
    """Dotted names in our package that a file imports; `module` is its own name, for relative
    imports.
    """
    found: set[str] = set()
    for node in import_statements(source):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            start = _start(node, module)
            found |= {f"{start}.{alias.name}" for alias in node.names}
    return {name for name in found if name == OWN_MODULE or name.startswith(OWN_MODULE + ".")}


def outside_imports(source: bytes) -> set[str]:
    """Imports of this project's other packages, which upstream does not have."""
    found: set[str] = set()
    for node in import_statements(source):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif not node.level:
            found.add((node.module or "").split(".")[0])
    return found & {"sglang_spec", "vendoring"}


def _start(node: ast.ImportFrom, module: str) -> str:
    """Absolute name of what an import statement imports from."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")[: -node.level] if module else []
    return ".".join([*parts, *filter(None, [node.module])])


def _files_of(name: str, package: Path) -> list[Path]:
    """Files that an import of `name` runs: each package on the way, and the longest module there
    is.
    """
    found = [package / "__init__.py"]
    folder = package
    for part in name.removeprefix(OWN_MODULE).strip(".").split("."):
        if (folder / f"{part}.py").is_file():
            found.append(folder / f"{part}.py")
            break
        folder = folder / part
        if not part or not folder.is_dir():
            break
        found.append(folder / "__init__.py")
    return [path for path in found if path.is_file()]


def _module_of(path: Path, package: Path) -> str:
    """Dotted name of a file; a package's `__init__` keeps that part, so that levels count alike."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join([OWN_MODULE, *parts])
