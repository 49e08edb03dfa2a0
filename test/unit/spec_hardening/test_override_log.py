"""The log of configuration overrides stays short, and says what is in force."""

from __future__ import annotations

from sglang.srt.runtime_context import get_context


def test_switching_to_and_fro_leaves_one_entry() -> None:
    context = get_context()
    with context.override_server_args():
        before = len(context.overrides_log())
        context.override("other", speculative_num_steps=9)
        for n in range(1000):
            context.override(
                "adaptive_spec.restore",
                speculative_num_steps=n % 4,
                speculative_num_draft_tokens=n % 4 + 1,
            )
        last = {"speculative_num_steps": 3, "speculative_num_draft_tokens": 4}
        assert context.overrides_log()[before:] == [
            ("other", {"speculative_num_steps": 9}),
            ("adaptive_spec.restore", last),
        ]
        assert last.items() <= context.resolved_server_args_dict().items()


def test_what_differs_in_source_or_fields_stays() -> None:
    context = get_context()
    with context.override_server_args():
        before = len(context.overrides_log())
        context.override("one", speculative_num_steps=1, speculative_num_draft_tokens=2)
        context.override("one", speculative_num_steps=2)
        context.override("two", speculative_num_steps=3)
        context.override("one", speculative_num_steps=4)
        assert [fields for _, fields in context.overrides_log()[before:]] == [
            {"speculative_num_steps": 1, "speculative_num_draft_tokens": 2},
            {"speculative_num_steps": 2},
            {"speculative_num_steps": 3},
            {"speculative_num_steps": 4},
        ]
