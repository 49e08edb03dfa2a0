"""Real completions: are they answered, drafted, accepted, and equal to a plain decode?"""

from __future__ import annotations

from ..demo import acceptance as counters
from . import outcome
from .outcome import Outcome
from .target import Target
from .teacher import Unequal, forced, parted

# A chain whose drafts are all refused has 1.0; noise of a broken capture or map ends well below.
NEAR_ONE = 1.05


def chat(target: Target) -> Outcome:
    """The questions through `/v1/chat/completions`, each with some text as an answer."""
    answers = {}
    for question in target.settings.questions:
        message = target.chat(question, 32)["choices"][0]["message"]
        text = (message.get("content") or message.get("reasoning_content") or "").strip()
        if not text:
            return outcome.finding(
                f"the answer to {question!r} is empty",
                "compare with a server without speculation; check the chat template",
            )
        answers[question] = text
    first = next(iter(answers.items()), ("", ""))
    return outcome.ok(f"{len(answers)} answers; {first[0]!r}: {first[1][:60]!r}", answers=answers)


def acceptance(target: Target) -> Outcome:
    """Verify cycles ran, and the accept length is over the floor."""
    if not target.settings.speculation:
        return outcome.skipped("no speculation was asked for")
    histograms, cycles = [], 0
    for prompt in target.settings.prompts:
        answer = target.generate(target.ids(prompt), target.settings.max_new_tokens)
        histograms.append(answer.correct_drafts)
        cycles += answer.cycles
    pooled = counters.pool(histograms)
    if cycles == 0 or not pooled:
        return outcome.finding(
            f"no verify cycle was counted over {len(histograms)} prompts",
            "speculation may be switched off under load or by a request; look at /server_info",
        )
    length = counters.accept_length(pooled)
    positions = [round(share, 3) for share in counters.position_acceptance(pooled)]
    figures = {"accept_length": round(length, 3), "position_acceptance": positions}
    floor = target.settings.min_accept_length
    proven = (target.info.get("speculative_self_test") or {}).get("accept_length") or 0.0
    if length < floor:
        word = "next to nothing is accepted: " if length < NEAR_ONE else ""
        return outcome.finding(
            f"{word}accept length {length:.2f} over {cycles} cycles is below {floor:.2f}",
            "a wrong capture or token map keeps the output right and loses the speed: run "
            "`sglang-spec contract --target T --draft D`, then `sglang-spec capture compare` with "
            "the training dump",
            **figures,
        )
    shown = f"accept length {length:.2f} over {cycles} cycles"
    if proven:
        shown += f" (self-test: {proven:.2f})"
    return outcome.ok(
        shown + f", by position {' / '.join(f'{p:.2f}' for p in positions)}", **figures
    )


def equality(target: Target) -> Outcome:
    """Greedy answers equal those of the baseline, or of a teacher-forced prefill without one."""
    baseline = target.settings.baseline
    found = _against(target, baseline) if baseline else _forced(target)
    prompts = len(target.settings.prompts)
    with_what = baseline or "a teacher-forced prefill"
    ties = [unequal for unequal in found if unequal.tie]
    wrong = [unequal for unequal in found if not unequal.tie]
    figures = {"prompts": prompts, "ties": len(ties), "unequal": [u.to_json() for u in wrong]}
    if not wrong:
        note = f", {len(ties)} of them up to a tie" if ties else ""
        return outcome.ok(f"{prompts} answers equal {with_what}{note}", **figures)
    first = wrong[0]
    return outcome.finding(
        f"prompt {first.prompt} ({target.settings.prompts[first.prompt]!r}), position "
        f"{first.position}: token {first.got}, but {with_what} has {first.wanted}"
        + (f", which is {first.gap:.2f} likelier" if first.gap is not None else ""),
        "speculation must not change greedy output: keep this prompt, compare with a server "
        "without --speculative-algorithm, and report both",
        **figures,
    )


def _forced(target: Target) -> list[Unequal]:
    found = []
    for number, prompt in enumerate(target.settings.prompts):
        ids = target.ids(prompt)
        tokens = target.generate(ids, target.settings.max_new_tokens).tokens
        unequal = forced(target, number, ids, tokens)
        found += [unequal] if unequal else []
    return found


def _against(target: Target, url: str) -> list[Unequal]:
    found = []
    base = Target(url, target.settings)
    try:
        for number, prompt in enumerate(target.settings.prompts):
            ids = target.ids(prompt)
            count = target.settings.max_new_tokens
            mine, theirs = target.generate(ids, count).tokens, base.generate(ids, count).tokens
            # Both continue one prefix: how far apart the two tokens are is the baseline's to say.
            unequal = parted(base, number, ids, mine, theirs)
            found += [unequal] if unequal else []
    finally:
        base.close()
    return found
