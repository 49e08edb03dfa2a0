"""One visit to a GPU machine: as many tests and benchmarks as its time holds, the worthiest first.

`python -m gpu_visit run --out FOLDER` (docs/gpu.md). What it runs is data, `test/gpu/visit.toml`.
"""
