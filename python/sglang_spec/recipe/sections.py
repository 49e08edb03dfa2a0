"""The sections of a recipe. A key that has a flag says so; what it means is said by the flag."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field

from .keys import key

EMBEDDED = "embedded"  # as path of model and draft: the pair of this repository
OFF = "off"


@dataclass(frozen=True, kw_only=True)
class Model:
    """The target.

    architecture, hidden_size, layers, attention_heads: what its config.json says, for a check where
    the weights are not at hand; where they are, all are held against it. device: "cpu" for a host
    without GPUs.
    """

    path: str = key("--model-path", default=MISSING)
    revision: str | None = key("--revision")
    served_name: str | None = key("--served-model-name")
    architecture: str | None = key()
    hidden_size: int | None = key(least=1)
    layers: int | None = key(least=1)
    attention_heads: int | None = key(least=1)
    device: str = key(default="cuda", one_of=("cuda", "cpu"))
    dtype: str | None = key("--dtype", one_of=("auto", "bfloat16", "float16", "float32"))
    quantization: str | None = key("--quantization")
    kv_cache_dtype: str | None = key("--kv-cache-dtype")
    context_length: int | None = key("--context-length", least=1)
    trust_remote_code: bool = key("--trust-remote-code", default=False)
    attention_backend: str | None = key("--attention-backend")
    mem_fraction_static: float | None = key("--mem-fraction-static", least=0.05, most=0.99)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The draft and its shape; topk 1 is a chain of num_steps drafts and the bonus token."""

    path: str = key("--speculative-draft-model-path", default=MISSING)
    algorithm: str = key("--speculative-algorithm", default="EAGLE3", one_of=("EAGLE", "EAGLE3"))
    revision: str | None = key("--speculative-draft-model-revision")
    num_steps: int = key("--speculative-num-steps", default=MISSING, least=1)
    topk: int = key("--speculative-eagle-topk", default=1, least=1)
    num_draft_tokens: int = key("--speculative-num-draft-tokens", default=MISSING, least=2)
    attention_backend: str | None = key("--speculative-draft-attention-backend")
    quantization: str | None = key("--speculative-draft-model-quantization")
    min_accept_length: float | None = key("--speculative-min-accept-length", least=1)
    verify_timeout: float | None = key("--speculative-verify-timeout", least=1)


@dataclass(frozen=True, kw_only=True)
class Capture:
    """Which states the draft takes. `outputs_of_layers`: zero-based decoder layers whose outputs
    the slots of fc were trained on, in order; held against the contract where the draft is here."""

    outputs_of_layers: tuple[int, ...] = key(default=())
    contract: str | None = key("--speculative-contract", one_of=("enforce", "strict", "report"))


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """From which batch on nothing is speculated: a number of requests, or "auto"."""

    disable_at: int | str = key(
        "--speculative-disable-batch-threshold", default=MISSING, least=1, one_of=("auto",)
    )
    enable_at: int | None = key("--speculative-enable-batch-threshold", least=0)
    dwell: int | None = key("--speculative-threshold-dwell", least=1)


@dataclass(frozen=True, kw_only=True)
class Comm:
    """What the ranks reduce with. plan: "auto" or a file of comm-bench; fusion: a backend, "off"
    forbids it; rank_check: compare what ranks accepted every so many verify steps."""

    plan: str | None = key("--speculative-comm-plan")
    rank_check: int | None = key("--speculative-rank-check", least=1)
    fusion: str | None = key(
        "--flashinfer-allreduce-fusion-backend", one_of=("auto", "trtllm", "mnnvl", "cutedsl", OFF)
    )
    disable_custom_all_reduce: bool = key("--disable-custom-all-reduce", default=False)


@dataclass(frozen=True, kw_only=True)
class Parsers:
    """Parsers of what the model says; names are those of SGLang."""

    reasoning: str | None = key("--reasoning-parser")
    tool_call: str | None = key("--tool-call-parser")


@dataclass(frozen=True, kw_only=True)
class HierarchicalCache:
    """A second level of the KV cache in host memory; the section alone switches it on.

    ratio: host pool over device pool; size_gb: of the host pool of each rank, in its place.
    """

    ratio: float | None = key("--hicache-ratio", least=1.0)
    size_gb: int | None = key("--hicache-size", least=1)
    write_policy: str | None = key(
        "--hicache-write-policy", one_of=("write_back", "write_through", "write_through_selective")
    )
    io_backend: str | None = key("--hicache-io-backend", one_of=("direct", "kernel"))
    storage_backend: str | None = key("--hicache-storage-backend")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much is served at once. max_running_requests is needed with a draft: where it is not
    given, SGLang caps it at 48."""

    max_running_requests: int | None = key("--max-running-requests", least=1)
    max_queued_requests: int | None = key("--max-queued-requests", least=0)
    max_total_tokens: int | None = key("--max-total-tokens", least=1)
    chunked_prefill_size: int | None = key("--chunked-prefill-size", least=-1)
    cuda_graph_max_bs: int | None = key("--cuda-graph-max-bs-decode", least=1)


@dataclass(frozen=True, kw_only=True)
class Listen:
    """Where it listens. secrets: a YAML file with the line `api-key: …`, readable by its owner
    only; it is given to the server as a file, so the key is on no command line."""

    host: str = key("--host", default="127.0.0.1")
    port: int = key("--port", default=30000, least=1, most=65535)
    secrets: str | None = key("--config")
    metrics: bool = key("--enable-metrics", default=False)


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Ranks and hosts. rank and leader (HOST:PORT of node 0) differ between nodes or deployments;
    `--set nodes.rank=1` gives them."""

    tp_size: int = key("--tp-size", default=1, least=1)
    count: int = key("--nnodes", default=1, least=1)
    rank: int = key("--node-rank", default=0, least=0)
    leader: str | None = key("--dist-init-addr")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What one node has to have: GPUs, part of their name, their capability ("12.0"), GiB each."""

    gpus: int | None = key(least=0)
    name: str | None = key()
    capability: str | None = key()
    memory_gib: float | None = key(least=1)


@dataclass(frozen=True, kw_only=True)
class Extra:
    """Everything else: flags for the server as they stand, and variables of its environment."""

    flags: tuple[str, ...] = key(default=())
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole recipe. A section that is None is not in the file."""

    file: str
    about: str
    model: Model
    draft: Draft | None = None
    capture: Capture = field(default_factory=Capture)
    threshold: Threshold | None = None
    comm: Comm = field(default_factory=Comm)
    parsers: Parsers = field(default_factory=Parsers)
    hierarchical_cache: HierarchicalCache | None = None
    limits: Limits = field(default_factory=Limits)
    listen: Listen = field(default_factory=Listen)
    nodes: Nodes = field(default_factory=Nodes)
    machine: Machine = field(default_factory=Machine)
    extra: Extra = field(default_factory=Extra)


SECTIONS: dict[str, type] = {
    "model": Model,
    "draft": Draft,
    "capture": Capture,
    "threshold": Threshold,
    "comm": Comm,
    "parsers": Parsers,
    "hierarchical_cache": HierarchicalCache,
    "limits": Limits,
    "listen": Listen,
    "nodes": Nodes,
    "machine": Machine,
    "extra": Extra,
}
