"""What a server says of its speculation at one moment, and nothing else that it says.

`/server_info` holds the whole launch, keys and templates included. Only what is named here is
taken, so that a report can be sent to strangers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import httpx

# Arguments that explain a figure. None can hold a secret or a prompt.
ARGUMENTS = (
    "model_path",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "tp_size",
    "dp_size",
    "pp_size",
    "device",
    "attention_backend",
    "page_size",
    "max_running_requests",
    "max_total_tokens",
    "mem_fraction_static",
    "context_length",
    "cuda_graph_max_bs_decode",
    "disable_cuda_graph",
    "disable_overlap_schedule",
    "disable_radix_cache",
    "disable_custom_all_reduce",
    "enable_flashinfer_allreduce_fusion",
    "enable_deterministic_inference",
    "enable_metrics",
)
PREFIX = "speculative_"  # all of these, too


class SnapshotError(RuntimeError):
    """The server did not answer, or not as one that can be read; the text says what to do."""


@dataclass(frozen=True)
class Snapshot:
    """`ranks` has what each scheduler that answers says; `at` is seconds of a steady clock."""

    url: str
    date: str
    at: float
    version: str
    arguments: Mapping[str, Any]
    provenance: Mapping[str, Any]
    contract: Mapping[str, Any]
    communication: Mapping[str, Any]
    self_test: Mapping[str, Any]
    ranks: tuple[Mapping[str, Any], ...] = field(default=())

    @property
    def speculation(self) -> Mapping[str, Any]:
        """What the first rank watches; empty where it watches nothing."""
        return self.ranks[0].get("speculation") or {} if self.ranks else {}


def take(url: str, api_key: str | None = None, timeout: float = 30.0) -> Snapshot:
    """Ask the server at `url`.

    Raises:
        SnapshotError: it does not answer, refuses, or is no server of SGLang.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        bare(url)  # its port is judged here
        reply = httpx.get(f"{url.rstrip('/')}/server_info", headers=headers, timeout=timeout)
    except (httpx.InvalidURL, ValueError) as error:
        raise SnapshotError(f"{url!r} is no URL ({error}); give http://HOST:PORT") from error
    except httpx.HTTPError as error:
        raise SnapshotError(
            f"no answer from {bare(url)} ({type(error).__name__}); is a server listening there?"
        ) from error
    if reply.status_code in (401, 403):
        raise SnapshotError(f"{bare(url)} wants a key (HTTP {reply.status_code}); give --api-key")
    try:
        reply.raise_for_status()
        return of(reply.json(), url)
    except (httpx.HTTPStatusError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SnapshotError(
            f"{bare(url)}/server_info is not what a server of SGLang says "
            f"({type(error).__name__}, HTTP {reply.status_code})"
        ) from error


def of(info: Mapping[str, Any], url: str) -> Snapshot:
    """The snapshot in an answer of `/server_info`."""
    ours = info.get("spec_hardening", {})
    ranks = [
        {
            key: state[key]
            for key in ("speculation", "batch_threshold", "eagle3_capture")
            if state.get(key)
        }
        for state in info["internal_states"]
    ]
    return Snapshot(
        url=bare(url),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        at=time.monotonic(),
        version=str(info.get("version", "")),
        arguments={
            key: value
            for key, value in info.items()
            if (key in ARGUMENTS or key.startswith(PREFIX)) and value not in (None, "", False)
        },
        provenance=ours.get("provenance", {}),
        contract=ours.get("contract", {}),
        communication={
            **{"table": ours.get("communication", {}).get("table", [])},
            "in_use": info.get("communication_in_use", {}),
        },
        self_test=info.get("speculative_self_test", {}),
        ranks=tuple(ranks),
    )


def bare(url: str) -> str:
    """Scheme, host and port: what a URL may hold besides is nobody's business."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}"
