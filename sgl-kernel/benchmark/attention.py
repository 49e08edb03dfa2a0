"""Microseconds per call of the two attention operators, as a decode and a verify step call them.

Usage: python benchmark/attention.py [--json] [--threads N] [--heads 9 --kv-heads 3 --head-dim 64]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import sgl_kernel
import torch

VERIFY_WIDTH = 4
CONTEXTS = (64, 512, 4096)
BATCHES = (1, 8)


def main() -> None:
    args = _arguments()
    torch.set_num_threads(args.threads)
    dtype = getattr(torch, args.dtype)
    heads = (args.heads, args.kv_heads, args.head_dim)
    results = [
        {"operator": name, "batch": batch, "context": context, **_measure(call, args.seconds)}
        for context in CONTEXTS
        for batch in BATCHES
        for name, call in _calls(batch, context, heads, dtype, args.ragged).items()
    ]
    if args.json:
        print(json.dumps(_host(args) | {"results": results}, indent=2))
        return
    print(f"{'operator':<10}{'batch':>6}{'context':>9}{'median us':>11}{'best us':>10}")
    for row in results:
        print(
            f"{row['operator']:<10}{row['batch']:>6}{row['context']:>9}"
            f"{row['median_us']:>11.1f}{row['best_us']:>10.1f}"
        )


def _calls(
    batch: int, context: int, heads: tuple[int, int, int], dtype: torch.dtype, ragged: bool
) -> dict[str, Callable[[], Any]]:
    """Ready-made calls on one scattered cache; keys already present are `context` per request."""
    query_heads, kv_heads, dim = heads
    width = context + VERIFY_WIDTH
    slots = batch * width + 1
    k_cache, v_cache = (torch.randn(slots, kv_heads, dim).to(dtype) for _ in range(2))
    table = torch.zeros(batch + 1, width + 64, dtype=torch.int32)
    table[:batch, :width] = (torch.randperm(slots - 1) + 1).int().view(batch, width)
    rows = torch.arange(batch)
    prefix = torch.full((batch,), context)
    if ragged:
        prefix -= torch.arange(batch) * context // (4 * batch)
    scale = dim**-0.5

    q = torch.randn(batch, query_heads, dim).to(dtype)
    k, v = (torch.randn(batch, kv_heads, dim).to(dtype) for _ in range(2))
    out = torch.empty_like(q)
    loc = table[rows, prefix].long()
    ends = prefix + 1

    tokens = batch * VERIFY_WIDTH
    q4 = torch.randn(tokens, query_heads, dim).to(dtype)
    k4, v4 = (torch.randn(tokens, kv_heads, dim).to(dtype) for _ in range(2))
    out4 = torch.empty_like(q4)
    ends4 = prefix + VERIFY_WIDTH
    new = torch.full((batch,), VERIFY_WIDTH, dtype=torch.int32)
    starts = torch.arange(0, tokens, VERIFY_WIDTH, dtype=torch.int32)
    tree = torch.ones(VERIFY_WIDTH, VERIFY_WIDTH, dtype=torch.bool).tril().repeat(batch, 1, 1)

    ops = torch.ops.sgl_kernel
    cache, where = (k_cache, v_cache), (table, rows)
    args4 = (q4, k4, v4, out4, *cache, 1.0, 1.0, *where, ends4, new, starts, VERIFY_WIDTH, scale)

    def decode() -> None:
        ops.decode_attention_cpu(
            *(q, *cache, 1.0, 1.0, out, k, v, loc, None, *where, ends, scale, 0.0, False, 0)
        )

    def verify() -> None:
        ops.extend_attention_cpu(*args4, 0.0, False, 0)

    def verify_tree() -> None:
        ops.extend_attention_cpu(*args4, 0.0, False, 0, None, None, tree.flatten())

    return {"decode": decode, "verify": verify, "tree": verify_tree}


def _measure(call: Callable[[], Any], seconds: float) -> dict[str, float]:
    """Median and best of the calls that fit into the given time, after a warm-up."""
    samples: list[float] = []
    with torch.inference_mode():
        for _ in range(5):
            call()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until or len(samples) < 5:
            start = time.perf_counter_ns()
            call()
            samples.append((time.perf_counter_ns() - start) / 1000)
    return {
        "median_us": round(statistics.median(samples), 1),
        "best_us": round(min(samples), 1),
    }


def _host(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "package": sgl_kernel.__version__,
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        **{key: value for key, value in vars(args).items() if key != "json"},
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    parser.add_argument("--heads", type=int, default=9)
    parser.add_argument("--kv-heads", type=int, default=3)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=0.3, help="time per measurement")
    parser.add_argument("--ragged", action="store_true", help="requests of unequal length")
    return parser.parse_args()


if __name__ == "__main__":
    main()
