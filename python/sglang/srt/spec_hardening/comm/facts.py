"""What is known of a machine's GPUs and of the ways between them, as a record that can be replayed.

A record of another machine gives the same plan here as there: `Facts.load(FILE)`. Standard library
only; `gather` makes the record of this machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

# As `nvidia-smi topo -m` writes them: NVLink; one PCIe switch; several; one host bridge; one NUMA
# node; across nodes. UNKNOWN where NVML cannot say.
LINKS = ("X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS", "UNKNOWN")
PEER_STATES = ("works", "broken", "untested")
ORIGINS = ("recorded", "composed")


class FactsError(ValueError):
    """A record of facts that cannot be used: file, key, value, remedy."""


@dataclass(frozen=True)
class Gpu:
    """One GPU, in CUDA's order. `numa` is None where the host does not say."""

    name: str
    capability: tuple[int, int]
    memory_mib: int | None = None
    numa: int | None = None


@dataclass(frozen=True)
class PeerTest:
    """Whether one GPU can really write into another one's memory.

    `state` is "works" only if every pair was written and read back both ways at every size in
    `sizes` (bytes); drivers say yes also where an IOMMU garbles the data. `failed` names pairs.
    """

    state: str = "untested"
    sizes: tuple[int, ...] = ()
    failed: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Facts:
    """A machine. `origin` is "recorded" if read off it, "composed" if put together from what others
    published; `notes` say then which values are which.

    links: one row a GPU, one of LINKS for each peer ("X" for itself).
    kernel: parameters and module options that bear on peer access, as found.
    versions: driver, cuda, nccl, flashinfer; what is not there is left out.
    pcie_ipc: whether the installed FlashInfer has the PCIe-IPC all-reduce; nvcc: whether its
    kernels, built at first use, can be built. None where unknown.
    """

    gpus: tuple[Gpu, ...] = ()
    links: tuple[tuple[str, ...], ...] = ()
    peers: PeerTest = field(default_factory=PeerTest)
    cpu: str = ""
    sockets: int | None = None
    numa_nodes: int | None = None
    kernel: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    pcie_ipc: bool | None = None
    nvcc: bool | None = None
    origin: str = "recorded"
    notes: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | Path) -> Facts:
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FactsError(f"{path}: cannot be read as JSON: {error}") from error
        return cls.from_dict(content, str(path))

    @classmethod
    def from_dict(cls, content: Any, source: str = "facts") -> Facts:
        """The record that `to_dict` wrote; FactsError names what does not fit."""
        if not isinstance(content, dict):
            raise FactsError(f"{source}: a JSON object is needed, this is {type(content).__name__}")
        known = {one.name for one in fields(cls)}
        for key in content:
            if key not in known:
                raise FactsError(f"{source}: {key}: unknown key; known are {sorted(known)}")
        try:
            values = dict(content)
            values["gpus"] = tuple(
                Gpu(**{**gpu, "capability": tuple(gpu["capability"])})
                for gpu in content.get("gpus", [])
            )
            values["links"] = tuple(tuple(row) for row in content.get("links", []))
            peers = dict(content.get("peers", {}))
            for key in ("sizes", "failed"):
                peers[key] = tuple(peers.get(key, ()))
            values["peers"] = PeerTest(**peers)
            values["notes"] = tuple(content.get("notes", []))
            facts = cls(**values)
        except (KeyError, TypeError) as error:
            raise FactsError(f"{source}: {error}; write it with `doctor comm --save`") from error
        facts._check(source)
        return facts

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def dump(self) -> str:
        """JSON for people: a row of links or a GPU on one line."""
        content = self.to_dict()
        rows = {key: content.pop(key) for key in ("gpus", "links")}
        text = json.dumps(content, indent=2, sort_keys=True)
        lists = (
            f'  "{key}": [\n' + ",\n".join(f"    {json.dumps(row)}" for row in rows[key]) + "\n  ]"
            if rows[key]
            else f'  "{key}": []'
            for key in rows
        )
        return "{\n" + ",\n".join(lists) + ",\n" + text[2:] + "\n"

    def _check(self, source: str) -> None:
        count = len(self.gpus)
        if len(self.links) != count or any(len(row) != count for row in self.links):
            raise FactsError(f"{source}: links: {count} rows of {count} are needed, one a GPU")
        for row in self.links:
            for link in row:
                if link not in LINKS:
                    raise FactsError(f"{source}: links: {link!r} is none of {LINKS}")
        if self.peers.state not in PEER_STATES:
            raise FactsError(f"{source}: peers.state: {self.peers.state!r} not in {PEER_STATES}")
        if self.origin not in ORIGINS:
            raise FactsError(f"{source}: origin: {self.origin!r} is none of {ORIGINS}")

    def only(self, indices: Iterable[int]) -> Facts:
        """The same machine with these GPUs alone; an index that is not there is left out."""
        chosen = [index for index in indices if index < len(self.gpus)]
        return replace(
            self,
            gpus=tuple(self.gpus[a] for a in chosen),
            links=tuple(tuple(self.links[a][b] for b in chosen) for a in chosen),
        )

    def capability(self, ranks: int) -> tuple[int, int] | None:
        """The capability that the first `ranks` GPUs share; None if they differ or are not there.

        Upstream asks device 0 only, and ranks of two kinds would take different paths.
        """
        found = {gpu.capability for gpu in self.gpus[:ranks]}
        return found.pop() if len(found) == 1 and len(self.gpus) >= ranks else None

    def pairs(self, ranks: int) -> list[str]:
        """The link of every pair among the first `ranks` GPUs, of all if there are fewer."""
        known = min(ranks, len(self.gpus))
        return [self.links[a][b] for a in range(known) for b in range(a)]

    def full_nvlink(self, ranks: int) -> bool:
        """Whether NVLink joins every pair of the first `ranks` GPUs."""
        pairs = self.pairs(ranks)
        return bool(pairs) and all(link == "NV" for link in pairs)

    def fabric(self, ranks: int) -> str:
        """The way between the first `ranks` GPUs in words: what a person would say of the box."""
        if ranks < 2:
            return "one GPU" if ranks else "nothing between GPUs"
        kinds = set(self.pairs(ranks))
        if kinds == {"NV"}:
            return "NVLink between all"
        nodes = {gpu.numa for gpu in self.gpus[:ranks]}
        words = "NVLink between some" if "NV" in kinds else "PCIe only"
        if kinds & {"PIX", "PXB"}:
            words += ", switches"
        if "SYS" in kinds or len(nodes) > 1:
            words += ", across NUMA nodes"
        return words

    def machine(self, ranks: int | None = None) -> dict[str, Any]:
        """What a measurement is bound to: a plan measured here fits another host that has this.

        Of the first `ranks` GPUs alone, where given: a launch knows those of its ranks, and
        `comm-bench` the whole host, also where it measured some.
        """
        used = self if ranks is None else self.only(range(ranks))
        return {
            "gpus": [f"{gpu.name} SM{gpu.capability[0]}{gpu.capability[1]}" for gpu in used.gpus],
            "links": [" ".join(row) for row in used.links],
        }
