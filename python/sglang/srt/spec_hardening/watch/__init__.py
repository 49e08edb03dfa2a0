"""What a server that speculates does, seen while it serves.

- `phases`: where the time of a cycle goes, per band of batch sizes; `laps` takes the times.
- `counts`: drafts proposed and accepted by position, with the width that was used.
- `alarm`: healthy, degraded or unproven, with a reason; `tallies` compares the ranks for it.
- `metrics`: the same as Prometheus metrics.
- `live`: all of it at work in a rank; the one module that the engine calls.

Only `metrics` and `live` import more than the standard library.
"""
