"""Vendored SGLang: fetches the pinned wheel, applies `patches/`, and builds the distribution.

Needs nothing but the standard library and git, so that it serves as an in-tree build backend on
hosts with no network. The command line is `python -m vendoring`; pip enters through
`vendoring.backend`.
"""
