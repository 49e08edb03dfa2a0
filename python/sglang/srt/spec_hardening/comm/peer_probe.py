"""Writes from each GPU into each other one and reads back: `python peer_probe.py COUNT SIZE…`.

A line of JSON before each pair, one more if what arrived is not what was sent, `done` at the end.
Each size (bytes) is written by the copy engine (a copy as it is) and by a kernel (a copy that also
converts, which torch runs on the source and lets write into the peer). Run by `peers`.
"""

from __future__ import annotations

import json
import sys

import torch


def main(gpus: int, sizes: list[int]) -> None:
    for source in range(gpus):
        for target in range(gpus):
            if source == target:
                continue
            pair = f"{source}->{target}"
            print(json.dumps({"pair": pair}), flush=True)
            if wrong := _wrong(source, target, sizes):
                print(json.dumps({"pair": pair, "wrong": wrong}), flush=True)
    print(json.dumps({"done": True}), flush=True)


def _wrong(source: int, target: int, sizes: list[int]) -> str:
    """What is wrong with writes of `source` into `target`; empty if nothing is."""
    if not torch.cuda.can_device_access_peer(source, target):
        return "the driver says that this peer cannot be accessed"
    for size in sizes:
        count = size // 4
        sent = torch.arange(count, device=f"cuda:{source}", dtype=torch.int32) * 2654435 + size
        for kind, way in ((torch.int32, "copy engine"), (torch.int64, "kernel")):
            arrived = torch.zeros(count, device=f"cuda:{target}", dtype=kind)
            torch.cuda.synchronize(target)
            arrived.copy_(sent)
            torch.cuda.synchronize(source)
            torch.cuda.synchronize(target)
            if not torch.equal(arrived.cpu(), sent.cpu().to(kind)):
                return f"{size} bytes by {way} arrive altered"
    return ""


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(size) for size in sys.argv[2:]])
