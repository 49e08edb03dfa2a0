"""Which tokens of a request another one may take up: the radix cache's tokens and bigrams.

The draft's KV at a position depends on the token after it, so with EAGLE the cache's keys are
pairs: N entries need N + 1 tokens. Upstream counts tokens where it means entries, at both ends:

- A request that ends has one token more than KV: the last one was sampled and is not written yet.
  It completes the last pair, and the draft has seen it. Cutting the tokens where the KV ends
  leaves the last entry out.
- A prompt is matched but for its last token, which has to be computed. All its tokens are needed
  to match the entries before that.

Called by: `mem_cache/common.py` (patch `radix-counts-pairs`). No torch.
"""

from __future__ import annotations

from typing import Any

from ..threshold.pending import checkpoint_end

REPLACED = "NaN happened"  # what `Req._check_vocab_boundary_finish` says


def in_pairs(tree_cache: Any) -> bool:
    """Whether the keys of a tree are pairs of tokens, and nothing but attention KV hangs on them.

    Windows and recurrent states have rules of their own for where a prefix may end, and trees that
    keep KV elsewhere as well (LMCache, FlexKV) store a slot for each token that they are given. A
    draft of several layers needs more tokens after a position than the next one.
    """
    from sglang.srt.runtime_context import get_spec

    return (
        type(tree_cache).__name__ == "UnifiedRadixCache"
        and not get_spec().enable_multi_layer_eagle
        and bool(tree_cache.tree_core.is_eagle)
        and not tree_cache.supports_swa()
        and not tree_cache.supports_mamba()
    )


def end(request: Any, tree_cache: Any, owned: int) -> int:
    """How many tokens of a request that ends the tree is given.

    Args:
        request: a `Req`, its row not released yet; its fill ids are up to date.
        tree_cache: where they go.
        owned: tokens of KV that the request owns, those after a stop left out.
    """
    valid = checkpoint_end(request, owned)
    whole = valid == owned == int(request.kv.kv_committed_len)
    # A token outside of the vocabulary was replaced after the draft had seen it.
    whole = whole and getattr(request.finished_reason, "matched", None) != REPLACED
    if not whole or request.session is not None or not in_pairs(tree_cache):
        return valid
    known = len(request.origin_input_ids) + len(request.output_ids_through_stop)
    return min(owned + 1, known)


def match_limit(tree_cache: Any, limit: int) -> int:
    """How many tokens of a prompt to look up so that at most `limit` positions are found.

    Args:
        limit: less than the tokens of the prompt.
    """
    return limit + 1 if in_pairs(tree_cache) else limit
