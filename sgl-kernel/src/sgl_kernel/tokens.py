"""Token bookkeeping around verify: bonus tokens, and the shifted ids of the next draft layer."""

import torch

from sgl_kernel.ragged import enumerate_segments


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor,
    accept_lens: torch.Tensor,
    bonus_tokens: torch.Tensor,
    accept_stride: int,
) -> None:
    """Write each request's last accepted token (the target's own) into `bonus_tokens`, in place.

    Caller: `kernels/ops/speculative/eagle.py: fill_bonus_tokens_func`.

    Args:
        accept_tokens: integer, bs * accept_stride entries, request after request.
        accept_lens: integer [bs], counting the bonus token, so at least 1.
        bonus_tokens: integer [bs].
    """
    last = accept_lens.to(torch.int64).view(-1, 1) - 1
    bonus_tokens.copy_(accept_tokens.reshape(-1, accept_stride).gather(1, last).squeeze(1))


def rotate_input_ids_cpu(
    input_ids: torch.Tensor,
    extend_start_loc: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    topk_index: torch.Tensor,
    select_index: torch.Tensor | None = None,
) -> None:
    """Shift each request's ids one to the left and put its new token at the end, in place.

    Caller: `kernels/ops/speculative/multi_layer_eagle.py: rotate_input_ids`. A request of length
    zero is left alone.

    Args:
        input_ids: integer [tokens].
        extend_start_loc, extend_seq_lens: integer [bs], the segment of each request.
        topk_index: integer [bs] or [bs, 1], the new token.
        select_index: integer [bs], where the new token goes instead of the segment's last position.
    """
    lengths = extend_seq_lens.to(torch.int64)
    start = extend_start_loc.to(torch.int64)
    segments = enumerate_segments(lengths - 1)
    position = start[segments.row] + segments.offset
    input_ids[position] = input_ids[position + 1]
    last = start + lengths - 1 if select_index is None else select_index.to(torch.int64)
    filled = lengths > 0
    input_ids[last[filled]] = topk_index.reshape(-1)[filled].to(input_ids.dtype)
