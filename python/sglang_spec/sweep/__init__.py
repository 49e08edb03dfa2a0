"""`sglang-spec sweep`: which speculative settings are fastest, load by load.

- `point`: settings as points of a grid, and why a point is left out.
- `choose`: the flag line for each band of concurrency.
- `pareto`: tokens a second for each request against those of all, and the picture.
- `command`: the command; servers are measured by `bench.runner`.
"""
