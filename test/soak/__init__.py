"""Soak: thousands of random requests at a real server, each greedy answer known beforehand.

`python -m soak` (with `test` on PYTHONPATH) or `make soak`; see docs/soak.md.
"""
