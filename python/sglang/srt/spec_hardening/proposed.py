"""How many drafts one verify proposes for a request, by the width that it had.

Adaptive speculation changes the width between batches, and a result is handled when the width may
be another one again: a rate that divides by the width of now, or of the start, can be 0 or above 1.

Called by: `managers/scheduler_components/batch_result_processor.py` (patch `rates-by-used-width`).
"""

from __future__ import annotations

from typing import Any

from sglang.srt.runtime_context import get_spec


def num_proposed_drafts(result: Any) -> int:
    """Drafts of a request in the verify that `result` (`GenerationBatchResult`) comes from."""
    spec = get_spec()
    if spec.speculative_adaptive and result.speculative_num_draft_tokens is not None:
        return int(result.speculative_num_draft_tokens) - 1
    # As upstream counts, for all algorithms whose width does not change.
    if spec.speculative_num_draft_tokens:
        return int(spec.speculative_num_draft_tokens) - 1
    return int(spec.speculative_num_steps or 0)
