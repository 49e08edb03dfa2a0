"""Text that installed Python packages ship: docstrings, and functions that are short enough.

Nothing is downloaded and nothing is imported or run: files are parsed. Only packages of permissive
licences are known, and what is taken of them ends up in prompts, never in a checkpoint. Needs no
torch.
"""

from __future__ import annotations

import ast
import platform
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

# Distribution: (folder in site-packages, licence). The standard library stands as "python".
KNOWN: dict[str, tuple[str, str]] = {
    "python": ("", "PSF-2.0"),
    "aiohttp": ("aiohttp", "Apache-2.0 AND MIT"),
    "click": ("click", "BSD-3-Clause"),
    "datasets": ("datasets", "Apache-2.0"),
    "fsspec": ("fsspec", "BSD-3-Clause"),
    "huggingface_hub": ("huggingface_hub", "Apache-2.0"),
    "ipython": ("IPython", "BSD-3-Clause"),
    "jinja2": ("jinja2", "BSD-3-Clause"),
    "matplotlib": ("matplotlib", "PSF-based"),
    "mpmath": ("mpmath", "BSD-3-Clause"),
    "networkx": ("networkx", "BSD-3-Clause"),
    "numba": ("numba", "BSD-2-Clause"),
    "pandas": ("pandas", "BSD-3-Clause"),
    "prompt_toolkit": ("prompt_toolkit", "BSD-3-Clause"),
    "pydantic": ("pydantic", "MIT"),
    "pygments": ("pygments", "BSD-2-Clause"),
    "pyparsing": ("pyparsing", "MIT"),
    "rich": ("rich", "MIT"),
    "scipy": ("scipy", "BSD-3-Clause"),
    "setuptools": ("setuptools", "MIT"),
    "sympy": ("sympy", "BSD-3-Clause"),
    "torch": (
        "torch",
        "Apache-2.0 AND Apache-2.0 WITH LLVM-exception AND BSD-2-Clause AND BSD-3-Clause AND "
        "BSL-1.0 AND MIT",
    ),
    "torchvision": ("torchvision", "BSD-3-Clause"),
    "traitlets": ("traitlets", "BSD-3-Clause"),
    "transformers": ("transformers", "Apache-2.0"),
}
_SHORT = 24  # lines of a function that is shown whole
_SKIP = ("test", "tests", "_vendor", "vendored", "site-packages", "idlelib", "lib2to3")


class SourceError(ValueError):
    """A package that is not as the recipe has it; the text says which, and what to do."""


@dataclass(frozen=True)
class Unit:
    """A documented function or class.

    Attributes:
        name: `module.function`.
        doc: its docstring, cleaned; "" if it has none.
        code: its source if it is a short function, else "".
        head: signature and docstring, for a function with both whose body is real.
    """

    name: str
    doc: str
    code: str
    head: str


@dataclass(frozen=True)
class Package:
    """One installed package that text is taken from."""

    name: str
    version: str
    licence: str
    folder: Path


def installed(wanted: str) -> Package:
    """The package of `name==version`.

    Raises:
        SourceError: it is not known, not installed, or of another version.
    """
    name, version = wanted.split("==")
    if name not in KNOWN:
        raise SourceError(
            f"prompts.packages: {name} is not among the packages whose licence is known: "
            f"{', '.join(KNOWN)}"
        )
    folder, licence = KNOWN[name]
    if name == "python":
        found, place = platform.python_version(), Path(sysconfig.get_path("stdlib"))
    else:
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError as error:
            raise SourceError(f"prompts.packages: {name} is not installed: {wanted}") from error
        found = distribution.version
        place = Path(str(distribution.locate_file(folder)))
    if version not in (found, "*"):
        raise SourceError(
            f"prompts.packages: {wanted}, installed is {found}: its prompts would be others. "
            f"Install that version, take the finished prompts.jsonl.xz along, or write {name}==*"
        )
    return Package(name, found, licence, place)


def units(package: Package) -> Iterator[Unit]:
    """Every documented function and class, file by file in order of their names."""
    for path in sorted(package.folder.rglob("*.py")):
        inside = path.relative_to(package.folder).parts
        if any(part in _SKIP or part.startswith("test_") for part in inside):
            continue
        try:
            source = path.read_text(encoding="utf-8")
            tree = ast.parse(source)
        except (SyntaxError, ValueError, OSError, RecursionError):
            continue  # a template, or a file for another Python: it has no text for us
        yield from _of(tree, source.splitlines(), path.stem)


def _of(tree: ast.AST, lines: list[str], stem: str) -> Iterator[Unit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            doc = ast.get_docstring(node) or ""
            code = head = ""
            if isinstance(node, ast.FunctionDef):
                end = node.end_lineno or node.lineno
                if end - node.lineno < _SHORT:
                    code = textwrap.dedent("\n".join(lines[node.lineno - 1 : end]))
                if doc and len(node.body) > 1:
                    last = node.body[0].end_lineno or node.lineno
                    head = textwrap.dedent("\n".join(lines[node.lineno - 1 : last]))
            yield Unit(f"{stem}.{node.name}", doc, code, head)
