"""The self-test itself. Called by: `start.prove`, on every rank."""

from __future__ import annotations

import contextlib
import logging
import time
from contextlib import AbstractContextManager
from typing import Any

from sglang.srt.runtime_context import get_spec
from sglang.srt.spec_hardening.aux_capture import unproven_prompts

from . import compare, plan, quiet, scope, states
from .drive import Driver
from .result import Result, SelfTestError, State

logger = logging.getLogger(__name__)

CHECK = (
    "check the contract between draft and target, and that the captured layers are those the draft "
    "was trained on (eagle_aux_hidden_state_layer_ids), for instance with the capture tool"
)


def prove_decoding(scheduler: Any) -> Result | None:
    """Decode in every mode this server will serve; None without speculation.

    SelfTestError if the output is not the target's, a NaN shows up, memory is kept, or the accept
    length is under `--speculative-min-accept-length`.
    """
    if scheduler.draft_worker is None:
        return None
    reason = scope.reason_against(scheduler)
    if reason is not None:
        floor = get_spec().speculative_min_accept_length
        unheld = "" if floor is None else f"; --speculative-min-accept-length {floor} is not held"
        return Result(State.UNPROVEN, reason + unheld)
    begun = time.monotonic()
    room = quiet.room(scheduler)
    cases, left_out = plan.cases(scheduler)
    with quiet.no_trace(scheduler):
        reqs, untried = _run(scheduler, cases)
        quiet.flush(scheduler)
    if quiet.room(scheduler) != room:
        raise SelfTestError(
            f"free KV tokens and request rows were {room} before and are {quiet.room(scheduler)} "
            "after all requests ended: something keeps memory"
        )
    cycles = sum(req.spec_verify_ct for req in reqs)
    correct = sum(req.spec_num_correct_drafts for req in reqs)
    accept_length = 1 + correct / cycles if cycles else None
    if accept_length is None:
        raise SelfTestError("no verify ran: the requests ended without a speculative cycle")
    _hold_to_floor(accept_length, cycles)
    left_out += [f"{name} ({reason})" for name, reason in untried.items()]
    unseen = {f"fingerprint {n}" for n in unproven_prompts(scheduler.tp_worker.model_runner.model)}
    if unseen:
        reason = "no forward of this rank showed the states of its prompt"
        left_out += [f"{name} ({reason})" for name in sorted(unseen)]
        logger.warning("speculative self-test: %s: %s", ", ".join(sorted(unseen)), reason)
    modes = tuple(case.name for case in cases if case.name not in {*unseen, *untried})
    seconds = time.monotonic() - begun
    return Result(State.PROVEN, "", seconds, accept_length, cycles, modes, tuple(left_out))


def _run(scheduler: Any, cases: list[plan.Case]) -> tuple[list[Any], dict[str, str]]:
    """All cases, then their teacher; the Reqs whose acceptance counts, and the names of the cases
    that were not what they are called, with the reason."""
    driver = Driver(scheduler)
    threshold = getattr(scheduler.draft_worker, "threshold", None)
    tolerance = compare.tolerance_of(str(scheduler.model_config.dtype))
    counted: list[Any] = []
    untried: dict[str, str] = {}
    decoded = []
    for case in cases:
        sampling = {"max_new_tokens": case.new_tokens, **case.sampling}
        if case.check != "pattern":
            sampling["ignore_eos"] = True
        requests = [
            plan.request(scheduler, f"self-test {case.name} {row}", prompt, sampling)
            for row, prompt in enumerate(case.prompts)
        ]
        if case.chunk:
            quiet.flush(scheduler)  # a prefix that is found could leave less than a chunk
        with (
            states.in_turn(scheduler, case.steps),
            states.in_chunks(scheduler, case.chunk),
            _rehearsed(threshold, case),
        ):
            reqs = driver.run(requests)
        if case.chunk and any(req.extend_batch_idx < 2 for req in reqs):
            untried[case.name] = "the prompt was prefilled at once"
        if case.name == "prefix hit" and not all(req.cached_tokens for req in reqs):
            if case.expect_hit:
                raise SelfTestError(f"mode {case.name}: the prefix was not found in the cache")
            untried[case.name] = "nothing of the prompt was found in the cache"
        if case.check == "pattern":
            for req in reqs:
                compare.check_pattern(case, _text(scheduler, req))
        decoded += [
            (case, prompt, _output(req)) for prompt, req in zip(case.prompts, reqs, strict=True)
        ]
        if case.counts_acceptance:
            counted += reqs
    quiet.flush(scheduler)  # the teacher must not read what decoding wrote
    teachers = driver.run(
        [
            plan.request(
                scheduler,
                f"self-test teacher {number}",
                prompt + tuple(output),
                {"max_new_tokens": 1, "ignore_eos": True},
                teacher=len(output),
            )
            for number, (case, prompt, output) in enumerate(decoded)
        ]
    )
    for (case, _, output), teacher in zip(decoded, teachers, strict=True):
        if case.check == "pattern":
            digits = compare.digits_of(scheduler.tokenizer)
            compare.check_constrained(case, output, teacher, tolerance, digits)
        else:
            compare.check(case, output, teacher, tolerance)
    return counted, untried


def _output(req: Any) -> list[int]:
    return [int(token) for token in req.output_ids]


def _hold_to_floor(accept_length: float, cycles: int) -> None:
    floor = get_spec().speculative_min_accept_length
    if floor is not None and accept_length < floor:
        raise SelfTestError(
            f"accept length {accept_length:.2f} over {cycles} verify cycles is under "
            f"--speculative-min-accept-length {floor}; {CHECK}"
        )


def _text(scheduler: Any, req: Any) -> str:
    return str(scheduler.tokenizer.decode(_output(req), skip_special_tokens=True))


def _rehearsed(threshold: Any, case: plan.Case) -> AbstractContextManager[None]:
    """What the batch threshold does in a case; nothing on a server without one."""
    if threshold is None:
        return contextlib.nullcontext()
    rehearsed: AbstractContextManager[None] = threshold.rehearsed(case.crosses)
    return rehearsed
