"""`python -m sglang_spec.bench.generator`: upstream's serving benchmark, kept loaded.

Importing it costs ten seconds, so one process serves all measurements of a run. Arrivals,
concurrency, timing and percentiles are those of `sglang.benchmark.serving`; what this adds is the
last event of each answer, where token ids and speculation counters stand.

Protocol, one JSON object a line on stdin and stdout; `traffic` is the other side:
    {"url", "prompts", "new_tokens", "concurrency", "rate", "seed", "stop_at_eos"}
        -> {"result": figures by upstream's names, "answers": [...]} or {"error": text}
End of stdin ends it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import sys
import types
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import numpy

from ..client import key_headers
from ..process import die_with_parent

# Upstream reads its command line from a module variable; these are the fields that a run with the
# native endpoint and token ids looks at.
ARGUMENTS: dict[str, Any] = {
    "backend": "sglang",
    "dataset_name": "custom",
    "temperature": 0.0,
    "top_p": 1.0,
    "disable_stream": False,
    "return_logprob": False,
    "return_routed_experts": False,
    "logprob_start_len": -1,
    "top_logprobs_num": 0,
    "token_ids_logprob": None,
    "cache_report": False,
    "goodput": None,
    "plot_throughput": False,
    "header": None,
    "tag": None,
    "warmup_requests": 0,
    "sharegpt_output_len": None,
    "random_input_len": None,
    "random_output_len": None,
    "random_range_ratio": None,
    "output_file": os.devnull,
    "output_details": False,
}
HEARD: dict[str, dict[str, Any]] = {}  # request id: the last event of its answer


class Ear:
    """The lines of a response, passed on; the last event is kept in `HEARD`."""

    def __init__(self, content: Any) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        last = b""
        async for line in self._content:
            if line.startswith(b"data: {"):
                last = line
            yield line
        if last:
            event = json.loads(last[6:])
            HEARD[event.get("meta_info", {}).get("id", "")] = event

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)


class HeardResponse(aiohttp.ClientResponse):
    async def start(self, connection: Any) -> HeardResponse:
        await super().start(connection)
        self.content = Ear(self.content)  # type: ignore[assignment]
        return self


class NoTokenizer:
    """Upstream counts the tokens of the text again; the server's own counts are used instead."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return []


def session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        response_class=HeardResponse,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_read=900),
        read_bufsize=2**20,
    )


def headers_of(serving: Any) -> None:
    """Let upstream's requests carry SGLANG_API_KEY; without it they stay as they are."""
    if key_headers():
        serving.get_auth_headers = key_headers


def measure(serving: Any, job: dict[str, Any]) -> dict[str, Any]:
    """One load, from empty prefix caches to the last answer."""
    rows = [
        serving.DatasetRow(
            prompt=ids,
            prompt_len=len(ids),
            output_len=job["new_tokens"],
            extra_request_body={"rid": f"bench-{job['number']}-{number}"},
        )
        for number, ids in enumerate(job["prompts"])
    ]
    serving.set_global_args(
        Namespace(**ARGUMENTS, disable_ignore_eos=job["stop_at_eos"], num_prompts=len(rows))
    )
    random.seed(job["seed"])
    numpy.random.seed(job["seed"])  # the arrivals are drawn from it
    HEARD.clear()
    result = asyncio.run(
        serving.benchmark(
            backend="sglang",
            api_url=f"{job['url']}/generate",
            base_url=job["url"],
            model_id="default",
            tokenizer=NoTokenizer(),
            input_requests=rows,
            request_rate=job["rate"] or float("inf"),
            max_concurrency=job["concurrency"],
            disable_tqdm=True,
            lora_names=[],
            lora_request_distribution=None,
            lora_zipf_alpha=None,
            extra_request_body={},
            profile=False,
            flush_cache=True,
            warmup_requests=0,
        )
    )
    answers = []
    for row, error, ttft in zip(rows, result["errors"], result["ttfts"], strict=True):
        event = HEARD.get(row.extra_request_body["rid"], {})
        answers.append({**_answer(event), "error": error.strip()[-300:], "ttft": ttft})
    figures = {key: value for key, value in result.items() if isinstance(value, int | float)}
    return {"result": figures, "answers": answers}


def _answer(event: dict[str, Any]) -> dict[str, Any]:
    meta = event.get("meta_info", {})
    return {
        "tokens": event.get("output_ids", []),
        "prompt_tokens": meta.get("prompt_tokens"),
        "cycles": meta.get("spec_verify_ct") or 0,
        "correct_drafts": meta.get("spec_num_correct_drafts") or 0,
        "proposed_drafts": meta.get("spec_num_proposed_drafts"),
        "histogram": meta.get("spec_correct_drafts_histogram") or [],
        "latency": meta.get("e2e_latency"),
    }


@contextmanager
def stand_in(name: str) -> Iterator[None]:
    """Inside, `import name` finds an empty module where the package is not installed.

    Upstream imports Hugging Face's `datasets` for its image benchmarks, which never run here.
    """
    if importlib.util.find_spec(name) is not None:
        yield
        return
    module = types.ModuleType(name)
    module.__getattr__ = lambda _: None  # type: ignore[method-assign]
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]


def main() -> None:
    die_with_parent()
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what upstream prints must not end up between the replies
    import transformers  # noqa: F401  (it looks for packages, and must not find the stand-in)

    with stand_in("datasets"):
        from sglang.benchmark import serving

    if not hasattr(serving, "_create_bench_client_session"):
        raise SystemExit("sglang.benchmark.serving makes its sessions elsewhere since this release")
    serving._create_bench_client_session = session
    headers_of(serving)
    print(json.dumps({"ready": True}), file=replies)
    for line in sys.stdin:
        try:
            reply = measure(serving, json.loads(line))
        except (OSError, ValueError, aiohttp.ClientError) as error:
            reply = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(reply), file=replies)


if __name__ == "__main__":
    main()
