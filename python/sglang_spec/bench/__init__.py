"""Servers that differ in how they speculate, measured in turn; `benchmark/threshold.py` runs it.

- `shape`: the pairs to serve, a Llama-8B shape without weights among them.
- `mode`: the ways to speculate, as launches.
- `load`: requests at a fixed concurrency, and what came back in their steady part.
- `scene`: what is measured on a server: one concurrency, a ramp, a load on the edge.
- `visit`: starts servers and measures the modes in turn.
- `record`: the results file, appended visit by visit.
- `figures`: ratios with their bounds. `picture`: the plot. `kernels`: what a profile shows.
"""
