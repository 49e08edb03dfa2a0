"""Does the server answer, does it call itself ready, does it speculate at all?"""

from __future__ import annotations

from . import outcome
from .outcome import Outcome
from .target import Target


def health(target: Target) -> Outcome:
    """`/health` is 200; the text of a 503 is the server's own reason."""
    reply = target.http.get("/health")
    if reply.status_code == 200:
        return outcome.ok("/health answers 200")
    return outcome.finding(
        f"/health answers {reply.status_code}: {reply.text.strip() or 'no reason given'}",
        "read the end of the server's log; the last line names rank, stage and cause",
        status=reply.status_code,
    )


def self_test(target: Target) -> Outcome:
    """The state that the server's self-test left in `/server_info`."""
    found = target.info.get("speculative_self_test")
    if not target.settings.speculation:
        return outcome.skipped("no speculation was asked for")
    if not found:
        return outcome.skipped("the server has no self-test (plain SGLang, or no EAGLE)")
    if found["state"] == "proven":
        return outcome.ok(
            f"proven at start, accept length {found['accept_length']:.2f}",
            accept_length=found["accept_length"],
        )
    return outcome.finding(
        f"the self-test's state is {found['state']}: {found.get('reason') or 'no reason given'}",
        "start the server with real weights, without forced acceptance and without "
        "--skip-speculative-self-test",
        state=found["state"],
    )


def speculation(target: Target) -> Outcome:
    """The server was launched with a speculative algorithm."""
    algorithm = target.info.get("speculative_algorithm")
    if not target.settings.speculation:
        return outcome.skipped("no speculation was asked for")
    if not algorithm:
        return outcome.finding(
            "the server runs without speculation (speculative_algorithm is not set)",
            "launch with --speculative-algorithm EAGLE3 and a draft, or say --no-speculation",
        )
    steps, width = (
        target.info.get(f"speculative_{key}") for key in ("num_steps", "num_draft_tokens")
    )
    return outcome.ok(
        f"{algorithm}, {steps} steps, {width} draft tokens",
        algorithm=algorithm,
        num_steps=steps,
        num_draft_tokens=width,
    )
