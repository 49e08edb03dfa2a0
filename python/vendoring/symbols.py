"""Looks symbols up in an upstream wheel, by syntax tree: which are there, and how."""

from __future__ import annotations

import ast
import zipfile
from pathlib import Path

_DEPTH = 8  # re-exports that are followed

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class WheelSymbols:
    """The modules of one wheel; each is parsed when it is first asked for."""

    def __init__(self, wheel: Path) -> None:
        self._zip = zipfile.ZipFile(wheel)
        self._names = set(self._zip.namelist())
        self._modules: dict[str, list[ast.stmt] | None] = {}

    def signature(self, symbol: str) -> str | None:
        """What can be compared of a dotted name; None if upstream has no such name.

        Functions give parameters, classes their constructor or fields, other names just `value`. A
        name that cannot be followed (an instance's attribute, an outside base class) counts as
        `value`.
        """
        return self._signature(symbol, _DEPTH)

    def _signature(self, symbol: str, depth: int) -> str | None:
        module, names = self._split(symbol)
        if not module:
            return None
        if not names:
            return "module"
        body = self._body(module)
        if body is None:
            return None
        node = _find(body, names[0])
        if node is None:
            return None
        if isinstance(node, ast.Import | ast.ImportFrom):
            target = _target(node, names[0], module, self._is_package(module))
            if target.split(".")[0] != "sglang" or depth == 0:
                return "value"
            return self._signature(".".join([target, *names[1:]]), depth - 1)
        return self._inside(node, names[1:], module, depth)

    def _inside(self, node: ast.stmt, names: list[str], module: str, depth: int) -> str | None:
        if not names:
            return _describe(node)
        if not isinstance(node, ast.ClassDef):
            return "value"
        found = _find(node.body, names[0])
        if found is not None:
            return self._inside(found, names[1:], module, depth)
        for base in node.bases:
            if not isinstance(base, ast.Name) or depth == 0:
                return "value"
            inherited = self._signature(f"{module}.{base.id}.{'.'.join(names)}", depth - 1)
            if inherited is not None:
                return inherited
        return None

    def _split(self, symbol: str) -> tuple[str, list[str]]:
        """Longest module that exists, and the names after it."""
        parts = symbol.split(".")
        for count in range(len(parts), 0, -1):
            module = ".".join(parts[:count])
            if self._file(module):
                return module, parts[count:]
        return "", parts

    def _file(self, module: str) -> str:
        path = module.replace(".", "/")
        return next((f for f in (f"{path}.py", f"{path}/__init__.py") if f in self._names), "")

    def _is_package(self, module: str) -> bool:
        return self._file(module).endswith("/__init__.py")

    def _body(self, module: str) -> list[ast.stmt] | None:
        if module not in self._modules:
            file = self._file(module)
            self._modules[module] = ast.parse(self._zip.read(file), file).body if file else None
        return self._modules[module]


def _find(body: list[ast.stmt], name: str) -> ast.stmt | None:
    """The last statement that binds `name` in a body, looking into `if`, `try` and `with` too."""
    found: ast.stmt | None = None
    for node in body:
        if isinstance(node, _Function | ast.ClassDef):
            found = node if node.name == name else found
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            found = node if name in bound else found
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound = {(a.asname or a.name).split(".")[0] for a in node.names}
            found = node if name in bound else found
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            found = _find_nested(node, name) or found
    return found


def _find_nested(node: ast.stmt, name: str) -> ast.stmt | None:
    for field in ("body", "orelse", "finalbody"):
        found = _find(getattr(node, field, []), name)
        if found is not None:
            return found
    for handler in getattr(node, "handlers", []):
        found = _find(handler.body, name)
        if found is not None:
            return found
    return None


def _target(node: ast.Import | ast.ImportFrom, name: str, module: str, package: bool) -> str:
    """Dotted name that an import statement in `module` binds `name` to."""
    alias = next(a for a in node.names if (a.asname or a.name).split(".")[0] == name)
    if isinstance(node, ast.Import):
        return alias.name if alias.asname else name
    parts = module.split(".")
    start = parts[: len(parts) - node.level + package] if node.level else []
    return ".".join([*start, *filter(None, [node.module]), alias.name])


def _describe(node: ast.stmt) -> str:
    if isinstance(node, _Function):
        return f"({ast.unparse(node.args)})"
    if not isinstance(node, ast.ClassDef):
        return "value"
    constructor = _find(node.body, "__init__")
    if isinstance(constructor, _Function):
        return f"class ({ast.unparse(constructor.args)})"
    fields = [ast.unparse(item) for item in node.body if isinstance(item, ast.AnnAssign)]
    return "class " + "; ".join(fields)
