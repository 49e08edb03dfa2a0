"""Vendored SGLang: fetches the pinned wheel, applies `patches/`, and builds the distribution.

Needs nothing but the standard library and git, so that it serves as an in-tree build backend on
hosts with no network. The command line is `python -m vendoring`; pip enters through
`vendoring.backend`.
"""

import sys

# Before anything is imported that an older one cannot read.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(
        f"error: vendoring needs Python 3.11 or newer\n  value: {sys.version.split()[0]}\n"
        f"  file: {sys.executable}\n  what to do: run it with python3.11 or python3.12"
    )
