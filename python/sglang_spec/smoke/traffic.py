"""What one request at a time does not show: batches, long prompts, streams, aborts, grammars."""

from __future__ import annotations

import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema

from . import outcome
from .outcome import Outcome
from .target import Target
from .teacher import forced, parted

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "year": {"type": "integer"}},
    "required": ["city", "year"],
    "additionalProperties": False,
}
LONG_SHARE = 0.75  # of the context, where no length is given
LONG_MOST = 8192
QUIET_S = 10.0


def parallel(target: Target) -> Outcome:
    """Several requests at once give what each gives alone (or a tie)."""
    prompts = target.settings.prompts
    many = [prompts[number % len(prompts)] for number in range(target.settings.parallel)]
    ids = {prompt: target.ids(prompt) for prompt in prompts}
    count = target.settings.max_new_tokens
    alone = {prompt: target.generate(ids[prompt], count).tokens for prompt in set(many)}
    with ThreadPoolExecutor(len(many)) as pool:
        together = list(pool.map(lambda prompt: target.generate(ids[prompt], count).tokens, many))
    for prompt, tokens in zip(many, together, strict=True):
        number = prompts.index(prompt)
        unequal = parted(target, number, ids[prompt], tokens, alone[prompt])
        if unequal is not None and not unequal.tie:
            return outcome.finding(
                f"prompt {number} ({prompt!r}) in a batch of {len(many)} differs from itself alone "
                f"at position {unequal.position}",
                "compare with a server without speculation at the same concurrency",
                position=unequal.position,
            )
    return outcome.ok(f"{len(many)} requests at once, the answers are those of each alone")


def long_prompt(target: Target) -> Outcome:
    """A prompt of many tokens, in chunks where the server chunks, is answered and right."""
    wanted = target.settings.long_tokens
    if wanted is None:
        room = int(target.info.get("max_req_input_len") or LONG_MOST)
        wanted = min(int(LONG_SHARE * room), LONG_MOST)
    once = target.ids(" ".join(target.settings.prompts))
    ids = (once * (wanted // len(once) + 1))[:wanted]
    tokens = target.generate(ids, 16).tokens
    if not tokens:
        return outcome.finding(f"no token after a prompt of {wanted}", "look at the server's log")
    unequal = forced(target, 0, ids, tokens)
    if unequal and not unequal.tie:
        return outcome.finding(
            f"after a prompt of {wanted} tokens, position {unequal.position}: token {unequal.got}, "
            f"but a teacher-forced prefill has {unequal.wanted}",
            "check the draft's context length and chunked prefill (--chunked-prefill-size)",
            prompt_tokens=wanted,
        )
    return outcome.ok(f"a prompt of {wanted} tokens", prompt_tokens=wanted)


def streaming(target: Target) -> Outcome:
    """The pieces of a stream are the answer of the same request without one."""
    question = target.settings.prompts[0]
    whole = target.chat(question, target.settings.max_new_tokens)["choices"][0]["message"]
    body = {
        "model": target.info.get("served_model_name") or "default",
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": target.settings.max_new_tokens,
        "stream": True,
    }
    pieces = []
    with target.http.stream("POST", "/v1/chat/completions", json=body) as reply:
        reply.raise_for_status()
        for line in reply.iter_lines():
            if not line.startswith("data:") or line.endswith("[DONE]"):
                continue
            for choice in json.loads(line.removeprefix("data:"))["choices"]:
                delta = choice["delta"]
                pieces.append(delta.get("reasoning_content") or delta.get("content") or "")
    expected = (whole.get("reasoning_content") or "") + (whole.get("content") or "")
    joined = "".join(pieces)
    if joined.strip() != expected.strip():
        return outcome.finding(
            f"the stream says {joined[:60]!r}, the whole answer {expected[:60]!r}",
            "compare with a server without speculation",
        )
    return outcome.ok(f"{len(pieces)} pieces join to the whole answer", pieces=len(pieces))


def abort(target: Target) -> Outcome:
    """A request that is aborted ends, and leaves nothing running."""
    rid = f"smoke-{uuid.uuid4().hex}"
    ids = target.ids(target.settings.prompts[0])
    room = int(target.info.get("max_req_input_len") or LONG_MOST) - len(ids) - 1
    request = target.request(ids, min(room, 4096), rid=rid, stream=True)
    request["sampling_params"]["ignore_eos"] = True
    last: dict[str, Any] = {}
    with target.http.stream("POST", "/generate", json=request) as reply:
        reply.raise_for_status()
        for line in reply.iter_lines():
            if not line.startswith("data:") or line.endswith("[DONE]"):
                continue
            if not last:
                target.http.post("/abort_request", json={"rid": rid}).raise_for_status()
            last = json.loads(line.removeprefix("data:"))
    reason = ((last.get("meta_info") or {}).get("finish_reason") or {}).get("type")
    deadline = time.monotonic() + QUIET_S
    while (running := _running(target)) and time.monotonic() < deadline:
        time.sleep(0.2)
    if running:
        return outcome.finding(
            f"{running} requests still run {QUIET_S:.0f} s after the only one was aborted",
            "if other clients use this server that is theirs; else it leaks requests",
        )
    if reason not in ("abort", None):
        return outcome.skipped(f"the request ended by itself ({reason}) before it was aborted")
    return outcome.ok("an aborted request ends and nothing is left running")


def _running(target: Target) -> int:
    """Requests that run now, as the server counts them (0 where it does not say)."""
    reply = target.http.get("/v1/loads")
    if reply.status_code != httpx.codes.OK:
        return 0
    loads = reply.json().get("loads") or []
    return sum(int(load.get("num_running_reqs") or 0) for load in loads)


def structured(target: Target) -> Outcome:
    """A JSON schema holds through accepted runs."""
    if target.info.get("grammar_backend") in (None, "none"):
        return outcome.skipped("the server has no grammar backend")
    named = {"name": "place", "schema": SCHEMA}
    reply = target.chat(
        "Name a city and a year as JSON.",
        96,
        response_format={"type": "json_schema", "json_schema": named},
    )
    choice = reply["choices"][0]
    text = choice["message"].get("content") or ""
    if choice["finish_reason"] == "length":
        return outcome.skipped("the answer was cut before the JSON ended")
    try:
        jsonschema.validate(json.loads(text), SCHEMA)
    except (json.JSONDecodeError, jsonschema.ValidationError) as problem:
        return outcome.finding(
            f"{text[:80]!r} does not fit the schema: {str(problem).splitlines()[0]}",
            "try --grammar-backend xgrammar, and a server without speculation",
        )
    return outcome.ok(f"{text.strip()[:60]}")
