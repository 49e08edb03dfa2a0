"""Renews the tables of `docs/fidelity.md`: `python -m kit.fidelity_page` in `test/`.

What a request can ask for, in which mode it holds, and which test says so.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path

from kit.fidelity_table import FAULTY

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/fidelity.md"
RECORD = Path(__file__).with_name("plain_fidelity.json")

EXACT, EQUAL, REFUSED, NONE = "exact", "equal in distribution", "refused", "does not apply"
MODES = (
    "CPU, greedy",
    "CPU, sampled",
    "GPU, greedy",
    "GPU, sampled",
    "GPU, rejection sampling",
)
WAYS = ("greedy", "sampled with a seed", "sampled without a seed", "planted fault is found")
CPU, SAMPLED = "test/cpu/test_fidelity.py", "test/cpu/test_fidelity_sampled.py"
ENDS = "test/cpu/test_fidelity_ends.py"
MANY, EMBEDDED = "test/cpu/test_fidelity_drawn.py", "test/cpu/test_fidelity_on_embedded.py"
CLIENT, GPU = "test/cpu/test_openai_client.py", "test/gpu/test_fidelity.py"
GPU_ENDS, GPU_DRAWN = "test/gpu/test_fidelity_ends.py", "test/gpu/test_fidelity_drawn.py"
THRESHOLD, GPU_THRESHOLD = "test/cpu/test_threshold.py", "test/gpu/test_threshold_penalties.py"


@dataclass(frozen=True)
class Cell:
    """A verdict, and the test that fails if it is wrong ("" where there is none)."""

    verdict: str
    test: str = ""

    def text(self) -> str:
        if not self.test:
            return self.verdict
        path, name = self.test.split("::")
        return f"[{self.verdict}](../{path} '{name}')"


@dataclass(frozen=True)
class Row:
    """One field, or several that hold for the same reason."""

    fields: str
    cells: tuple[Cell, ...]


def row(fields: str, greedy: str, sampled: str, gpu: str = "", gpu_sampled: str = "") -> Row:
    """The usual verdicts. On the CPU sampled rows are exact with a seed; on a GPU a seed makes an
    answer repeatable, and its distribution is the plain one."""
    on_gpu = Cell(EXACT, gpu) if gpu else Cell("not tested")
    drawn = Cell(EQUAL, gpu_sampled) if gpu_sampled else Cell("not tested")
    return Row(fields, (Cell(EXACT, greedy), Cell(EXACT, sampled), on_gpu, drawn, drawn))


PENALTIES = f"{CPU}::test_penalties_give_the_plain_tokens"
DRAWN = f"{CPU}::test_drawn_requests_get_the_plain_answers"
CUT = f"{ENDS}::test_answers_end_inside_an_accepted_run"
GRAMMAR = f"{ENDS}::test_grammars_end_inside_an_accepted_run"
RULED = f"{ENDS}::test_sampled_answers_keep_to_their_grammar"
CHATTED = f"{ENDS}::test_a_chat_answer_is_reasoned_and_keeps_to_its_format"
REASONED = f"{ENDS}::test_a_grammar_begins_where_the_reasoning_ends"
BUDGET = f"{ENDS}::test_reasoning_ends_with_its_budget"
COUNTED = f"{ENDS}::test_reasoning_is_counted_up_to_the_end_of_the_answer"
FIRST_END = f"{ENDS}::test_the_first_of_several_ends_in_a_run_counts"
CALLED = f"{CPU}::test_processors_give_the_plain_tokens"
MINIMUM = f"{CPU}::test_stop_tokens_are_banned_for_exactly_so_many_tokens"
GPU_PENALTIES, GPU_MINIMUM = f"{GPU}::test_penalties", f"{GPU}::test_minimum_length"
GPU_DRAWS = f"{GPU}::test_sampled_tokens_have_the_plain_distribution"
ON_GPU = {
    name: f"{GPU_ENDS}::{test}"
    for name, test in (
        ("grammar", "test_grammars_end_inside_an_accepted_run"),
        ("reasoned", "test_a_grammar_begins_where_the_reasoning_ends"),
        ("counted", "test_reasoning_is_counted_up_to_the_end_of_the_answer"),
        ("first end", "test_the_first_of_several_ends_in_a_run_counts"),
        ("cut", "test_answers_end_inside_an_accepted_run"),
        ("chatted", "test_a_chat_answer_is_reasoned_and_keeps_to_its_format"),
        ("choices", "test_choices_streams_and_logprobs"),
    )
}
GPU_GREEDY = f"{GPU_DRAWN}::test_drawn_requests_get_the_plain_answers"
GPU_SEED = f"{GPU_DRAWN}::test_a_seed_repeats_its_answer"
REFUSES = f"{CPU}::test_what_cannot_be_right_is_refused"

ROWS = (
    row("`frequency_penalty`, `presence_penalty`, `repetition_penalty`", PENALTIES, DRAWN,
        GPU_PENALTIES, GPU_DRAWS),
    row("`min_new_tokens`", MINIMUM, DRAWN, GPU_MINIMUM, GPU_DRAWS),
    row("`logit_bias`", PENALTIES, DRAWN, GPU_PENALTIES, GPU_DRAWS),
    Row("`temperature`, `top_k`, `top_p`, `min_p`", (
        Cell(NONE), Cell(EXACT, DRAWN), Cell(NONE),
        Cell(EQUAL, GPU_DRAWS), Cell(EQUAL, GPU_DRAWS))),
    Row("`temperature`, `top_k`, `top_p`, `min_p` without a seed", (
        Cell(NONE), Cell(EQUAL, f"{SAMPLED}::test_every_position_has_the_plain_distribution"),
        Cell(NONE), Cell(EQUAL, GPU_DRAWS), Cell(EQUAL, GPU_DRAWS))),
    Row("`sampling_seed` (only with `--enable-deterministic-inference`)", (
        Cell(NONE), Cell(EXACT, f"{CPU}::test_min_p_with_a_seed"), Cell(NONE),
        Cell("repeats", GPU_SEED), Cell("not tested"))),
    row("`custom_logit_processor`, `custom_params`", CALLED, CALLED, f"{GPU}::test_processors"),
    row("`regex`, `ebnf`", GRAMMAR, GRAMMAR, ON_GPU["grammar"]),
    row("`json_schema`, also as `response_format`", f"{CLIENT}::test_chat", RULED,
        ON_GPU["chatted"]),
    row("`structural_tag`, also as `response_format`", CHATTED, RULED, ON_GPU["chatted"]),
    row("grammars after reasoning (`--reasoning-parser`, `require_reasoning`)", REASONED, RULED,
        ON_GPU["reasoned"]),
    Row("a budget of reasoning (`--enable-strict-thinking`)", (
        Cell(EXACT, BUDGET), *[Cell("not tested")] * 4)),
    row("`usage.reasoning_tokens`", COUNTED, DRAWN, ON_GPU["counted"]),
    row("several ends in one accepted run", FIRST_END, DRAWN, ON_GPU["first end"]),
    row("`stop`, `stop_regex`, `stop_token_ids`, `ignore_eos`, `no_stop_trim`", CUT, DRAWN,
        ON_GPU["cut"]),
    row("`max_new_tokens`", CUT, DRAWN, GPU_PENALTIES),
    row("`n`", f"{CLIENT}::test_chat", f"{CPU}::test_each_choice_of_several_is_the_plain_one",
        ON_GPU["choices"]),
    row("streamed chunks", f"{CLIENT}::test_streamed_chunks_make_up_the_answer", DRAWN,
        ON_GPU["choices"]),
    row("`return_logprob`, `top_logprobs_num`, `token_ids_logprob`", CUT, DRAWN,
        ON_GPU["choices"]),
    row("all of these after a retraction", f"{CPU}::test_a_retracted_request_gets_the_same_answer",
        f"{CPU}::test_a_retracted_request_gets_the_same_answer", GPU_PENALTIES),
    row("penalties, `min_new_tokens` where a batch threshold changes the kind of step",
        f"{THRESHOLD}::test_penalties_count_alike_in_steps_of_both_kinds",
        f"{THRESHOLD}::test_drawn_requests_cross_and_get_the_plain_answers",
        f"{GPU_THRESHOLD}::test_answers_are_those_of_no_speculation"),
    row("the others of these there",
        f"{THRESHOLD}::test_drawn_requests_cross_and_get_the_plain_answers",
        f"{THRESHOLD}::test_drawn_requests_cross_and_get_the_plain_answers"),
    Row("`beam_width`, `return_sampling_mask`", (Cell(REFUSED, REFUSES),) * 5),
)  # fmt: skip


def mode(name: str, greedy: str = "", seeded: str = "", drawn: str = "", found: str = "") -> Row:
    """A way to serve: the tests of greedy requests, of those with a seed, of the distribution
    without one, and the test in which a planted fault changes that."""
    exact = [Cell(EXACT, test) if test else Cell("not tested") for test in (greedy, seeded)]
    equal = Cell(EQUAL, drawn) if drawn else Cell("not tested")
    return Row(name, (*exact, equal, Cell("yes", found) if found else Cell("not tested")))


MANY_DRAWN = f"{MANY}::test_many_drawn_requests_get_the_plain_answers"
OTHERS = f"{SAMPLED}::test_other_modes_have_the_plain_distribution"
FOUND = "test_a_window_judged_by_its_first_position_is_found"
CHAIN = f"{SAMPLED}::test_every_position_has_the_plain_distribution"
RETRACTED = f"{MANY}::test_retracted_requests_get_the_plain_answers"
CROSSED = f"{MANY}::test_requests_across_random_decisions_get_the_plain_answers"
CROSSED_DRAWS = f"{SAMPLED}::test_steps_with_a_draft_and_without_have_the_plain_distribution"
HOT = f"{SAMPLED}::test_a_temperature_that_is_too_high_is_found_behind_filters"
MODE_ROWS = (
    mode("CPU, a chain of three", DRAWN, DRAWN, CHAIN, f"{SAMPLED}::{FOUND}"),
    mode("the same, `top_k`, `top_p` and `min_p` alone", DRAWN, DRAWN, CHAIN, HOT),
    mode("CPU, a chain whose drafts are often wrong (full)", MANY_DRAWN, MANY_DRAWN, OTHERS),
    mode("CPU, a tree", DRAWN, DRAWN, OTHERS),
    mode("CPU, one step, two steps, a tree of 24 (full)", MANY_DRAWN, MANY_DRAWN),
    mode("CPU, adaptive step counts (full)", MANY_DRAWN, MANY_DRAWN, OTHERS),
    mode("CPU, batch threshold (full)", CROSSED, CROSSED, CROSSED_DRAWS),
    mode("CPU, retraction (full)", RETRACTED, RETRACTED),
    mode("CPU, embedded pair", f"{EMBEDDED}::test_drawn_requests_get_the_plain_answers"),
    mode("GPU, target-only sampling, a chain and a tree", GPU_GREEDY, "", GPU_DRAWS,
         f"{GPU}::{FOUND}"),
    mode("GPU, rejection sampling", "", "", GPU_DRAWS, f"{GPU}::{FOUND}"),
)  # fmt: skip


def table(head: str, columns: tuple[str, ...], rows: tuple[Row, ...]) -> str:
    lines = [f"| {head} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {one.fields} | {' | '.join(cell.text() for cell in one.cells)} |" for one in rows]
    return "\n".join(lines)


def faults() -> str:
    """What plain SGLang does."""
    record = json.loads(RECORD.read_text())
    lines = [
        f"| request ({record['date']}) | tokens without | with EAGLE3 | equal characters |",
        "|---|---|---|---|",
    ]
    for case in FAULTY:
        seen = record["cases"][case]
        without, speculating = seen["tokens"]
        lines.append(f"| {case} | {without} | {speculating} | {seen['equal characters']} |")
    return "\n".join(lines)


def renewed(page: str) -> str:
    """The page with its tables made anew."""
    tables = {
        "verdicts": table("field", MODES, ROWS),
        "modes": table("way to serve", WAYS, MODE_ROWS),
        "faults": faults(),
    }
    for name, made in tables.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        head, _, rest = page.partition(begin)
        page = f"{head}{begin}\n\n{made}\n\n{end}{rest.partition(end)[2]}"
    return page


def missing_tests() -> list[str]:
    """Tests that a verdict names and that are not there."""
    named = {cell.test for one in (*ROWS, *MODE_ROWS) for cell in one.cells if cell.test}
    known = set()
    for path in {test.split("::")[0] for test in named}:
        for node in ast.parse((ROOT / path).read_text()).body:
            if isinstance(node, ast.FunctionDef):
                known.add(f"{path}::{node.name}")
    return sorted(named - known)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
