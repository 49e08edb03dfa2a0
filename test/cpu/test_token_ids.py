"""A token id outside the vocabulary costs its sender a 400, and nobody else anything."""

from __future__ import annotations

from typing import Any

import pytest
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair
from sglang_spec.models.tiny.plan import VOCABULARY
from sglang_spec.server import Launch, Speculation

SHORT = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}
STOPS = {**SHORT, "min_new_tokens": 4, "stop_token_ids": [VOCABULARY]}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "first": ("/generate", {"input_ids": [VOCABULARY, 5, 6]}),
    "huge": ("/generate", {"input_ids": [5, 10**12, 6]}),
    "negative": ("/generate", {"input_ids": [5, -1]}),
    "one of a batch": ("/generate", {"input_ids": [[5, 6], [5, VOCABULARY]]}),
    "completions": ("/v1/completions", {"model": "m", "prompt": [5, VOCABULARY + 7]}),
    "stop tokens": ("/generate", {"input_ids": [5, 6], "sampling_params": STOPS}),
}


@pytest.mark.parametrize("path, body", BODIES.values(), ids=list(BODIES))
def test_an_id_outside_is_a_400_and_the_server_goes_on(
    servers: ServerPool, tiny: Pair, path: str, body: dict[str, Any]
) -> None:
    server = servers.server(Launch(tiny.target, Speculation(tiny.draft)))
    client = Client(server.url, timeout=600)
    before = client.generate([0, 70, 71], 8, ignore_eos=True).tokens
    extra = {"sampling_params": SHORT} if path == "/generate" else {"max_tokens": 8}
    reply = client.post(path, **{**extra, **body})
    assert reply.status_code == 400, reply.text
    assert "input_ids" in reply.text or "stop_token_ids" in reply.text
    assert f"{VOCABULARY} tokens" in reply.text
    assert client.generate([0, 70, 71], 8, ignore_eos=True).tokens == before
    assert server.returncode is None
    client.close()
