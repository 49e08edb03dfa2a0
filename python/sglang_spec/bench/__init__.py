"""Servers that differ in how they speculate, measured in turn.

`sglang-spec bench` (and `sweep` and `canary`, which are built on it), with real text and checks:

- `cells`: loads, closed and open. `corpus`: text of exact length. `subject`: the pair under test.
- `side`: what is compared, and what a server says of itself. `runner`: groups, rounds, order.
- `generator`, `traffic`: upstream's serving benchmark as a process, and the way to it.
- `measure`, `lossless`: one measurement, its answers, and what makes it invalid.
- `runfile`: the raw lines. `table`, `predict`: figures. `compare`: two runs.
- `output`, `markdown`, `curves`: the files. `session`, `options`, `command`: the command.

`benchmark/threshold.py`, for steady windows, ramps and pairs without weights:

- `shape`: the pairs to serve, a Llama-8B shape without weights among them.
- `mode`: the ways to speculate, as launches (of both).
- `load`: requests at a fixed concurrency, and what came back in their steady part.
- `scene`: what is measured on a server: one concurrency, a ramp, a load on the edge.
- `visit`: starts servers and measures the modes in turn.
- `record`: the results file, appended visit by visit.
- `figures`: ratios with their bounds. `picture`: the plot. `kernels`: what a profile shows.
"""
