"""Does a pytest node id name something that exists? Answered by reading the file, not by importing
it.
"""

from __future__ import annotations

import ast
from pathlib import Path

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def node_fault(root: Path, node: str) -> str:
    """Why `file::function` or `file::Class::function` (parameters in brackets are ignored) names
    nothing under `root`; empty where it names a test.
    """
    file, *names = node.split("[", 1)[0].split("::")
    if not names:
        return f"{node} names no function"
    path = root / file
    if not path.is_file():
        return f"{file} does not exist"
    scope: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8"), str(path)).body
    for name in names:
        found = next((s for s in scope if isinstance(s, _Definition) and s.name == name), None)
        if found is None:
            return f"{file} has no {name}"
        scope = found.body
    return ""
