"""Where a mail puts our modules: upstream has no package of our name.

`patches/places.toml` says for each module (or package) in `spec_hardening` where upstream would
look for it. Imports are rewritten to fit, in our modules, in the patched files and in the tests;
the names that they bind stay as they are, so that nothing else has to change.
"""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from .errors import VendoringError, text_of
from .layout import OWN_PACKAGE, Layout
from .uses import OWN_MODULE, import_statements

PREFIX = "python/sglang"
_OWN = f"{PREFIX}/{OWN_PACKAGE}/"
_WIDTH = 88  # characters of a line in upstream's files
# "(patch `slug`)" in a docstring tells which of our patches calls the module.
_PATCH_NAMES = re.compile(rb"\s*\(patch(?:es)?\s+`[^)]*`\)")


@dataclass(frozen=True)
class Places:
    """`modules`: dotted name below our package -> path below `python/sglang`, without `.py`."""

    modules: dict[str, str] = field(default_factory=dict)

    def path(self, name: str) -> str:
        """Path in upstream's layout of a file that a mail brings; empty for one that stays here."""
        if not self.modules or not name.startswith(_OWN):
            return name
        if name == f"{_OWN}__init__.py":
            return ""
        parts = Path(name.removeprefix(_OWN)).with_suffix("").parts
        return f"{PREFIX}/{'/'.join(self._moved(parts))}.py"

    def _moved(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        for length in range(len(parts), 0, -1):
            found = self.modules.get(".".join(parts[:length]))
            if found is not None:
                return (*found.split("/"), *parts[length:])
        raise VendoringError(
            "a module that goes upstream has no place there",
            file="patches/places.toml",
            key="modules",
            value=".".join(parts),
            remedy="add a line: its path below python/sglang, without `.py`",
        )

    def module(self, dotted: str) -> str:
        """The new dotted name of one of our modules."""
        parts = tuple(dotted.removeprefix(OWN_MODULE).strip(".").split("."))
        return ".".join(["sglang", *self._moved(parts)])

    def rewritten(self, name: str, data: bytes, known: frozenset[str]) -> bytes:
        """The file as it goes upstream. `known` are the dotted names of our modules."""
        if not self.modules or not name.endswith(".py"):
            return data
        if name.startswith(_OWN):
            data = _PATCH_NAMES.sub(b"", data)
        own = OWN_MODULE.encode() in data or name.startswith(_OWN)
        return self._imports(name, data, known) if own else data

    def _imports(self, name: str, data: bytes, known: frozenset[str]) -> bytes:
        lines = data.decode("utf-8", "surrogateescape").splitlines(keepends=True)
        for node in reversed(import_statements(data)):
            if isinstance(node, ast.ImportFrom):
                start = _absolute(node, name)
                if start == OWN_MODULE or start.startswith(OWN_MODULE + "."):
                    first, last = node.lineno - 1, node.end_lineno or node.lineno
                    indent = lines[first][: node.col_offset]
                    lines[first:last] = self._statement(node, start, indent, known)
            elif any(alias.name.startswith(OWN_MODULE) for alias in node.names):
                raise VendoringError(
                    "an import of our package cannot be rewritten for upstream",
                    file=name,
                    value=f"line {node.lineno}: import {node.names[0].name}",
                    remedy="write `from sglang.srt.spec_hardening import NAME`",
                )
        return "".join(lines).encode("utf-8", "surrogateescape")

    def _statement(
        self, node: ast.ImportFrom, start: str, indent: str, known: frozenset[str]
    ) -> list[str]:
        """Import statements that bind the same names from the new places."""
        modules = [alias for alias in node.names if f"{start}.{alias.name}" in known]
        names = [alias for alias in node.names if alias not in modules]
        found: list[str] = []
        for alias in modules:
            package, _, new = self.module(f"{start}.{alias.name}").rpartition(".")
            bound = alias.asname or alias.name
            found += _from(package, [new if new == bound else f"{new} as {bound}"], indent)
        if names:
            bound_names = [f"{a.name} as {a.asname}" if a.asname else a.name for a in names]
            found += _from(self.module(start), bound_names, indent)
        return found


def _from(module: str, names: list[str], indent: str) -> list[str]:
    line = f"{indent}from {module} import {', '.join(names)}\n"
    if len(line) <= _WIDTH + 1:
        return [line]
    inner = [f"{indent}    {name},\n" for name in names]
    return [f"{indent}from {module} import (\n", *inner, f"{indent})\n"]


def _absolute(node: ast.ImportFrom, name: str) -> str:
    """What a statement imports from, relative imports of our own modules resolved."""
    if not node.level:
        return node.module or ""
    if not name.startswith(_OWN):
        return ""
    parts = [*OWN_MODULE.split("."), *Path(name.removeprefix(_OWN)).parts][: -node.level]
    return ".".join([*parts, *filter(None, [node.module])])


def known_modules(package: Path) -> frozenset[str]:
    """Dotted names of all modules and packages at `package`."""
    found: set[str] = set()
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        named = parts[:-1] if parts[-1] == "__init__" else parts
        if named:
            found.add(".".join([OWN_MODULE, *named]))
    return frozenset(found)


def read_places(layout: Layout) -> Places:
    """`patches/places.toml`; without that file our modules stay where they are."""
    path = layout.patches / "places.toml"
    try:
        data = tomllib.loads(text_of(path))
    except FileNotFoundError:
        return Places()
    except tomllib.TOMLDecodeError as fault:
        raise VendoringError(
            "the file cannot be read", file=layout.shown(path), value=str(fault)
        ) from None
    modules = data.get("modules")
    if set(data) != {"modules"} or not isinstance(modules, dict):
        raise VendoringError(
            "the file has something else than one table",
            file=layout.shown(path),
            value=", ".join(data),
            remedy="write `[modules]` and a line for each module",
        )
    wrong = [key for key, value in modules.items() if not isinstance(value, str)]
    if wrong:
        raise VendoringError(
            "a place is not a path", file=layout.shown(path), key=f"modules.{wrong[0]}"
        )
    return Places(modules)
