"""Counter-based random numbers for seeded sampling: MurmurHash3 of seed, position and column."""

import torch

_C1 = 0xCC9E2D51
_C2 = 0x1B873593
_M5 = 0xE6546B64
_F1 = 0x85EBCA6B
_F2 = 0xC2B2AE35
_KEY_BYTES = 16


def murmur_hash32_cpu(
    seed: torch.Tensor, positions: torch.Tensor, col_indices: torch.Tensor
) -> torch.Tensor:
    """MurmurHash3 (x86, 32 bit) of the 16-byte key (seed, position, column), little-endian.

    Caller: `kernels/ops/sampling/murmur_hash.py: murmur_hash32`, as
    `torch.ops.sgl_kernel.murmur_hash32_cpu.default`. Arithmetic runs on int32, whose products wrap
    as the hash needs and which is half the memory of int64.

    Args:
        seed: integer [n], 64-bit (uint64 or int64).
        positions: integer [n]; the low 32 bits count.
        col_indices: integer [m]; the low 32 bits count.

    Returns:
        uint32 [n, m].
    """
    low, high = _words(seed).unbind(1)
    position, column = _words(positions)[:, 0], _words(col_indices)[:, 0]
    state = torch.zeros_like(low)
    for block in (low, high, position):
        state = _mix(state, _scramble(block))
    hashed = _mix(state.unsqueeze(1), _scramble(column).unsqueeze(0))
    return _finalise(hashed.bitwise_xor_(_KEY_BYTES)).view(torch.uint32)


def _words(values: torch.Tensor) -> torch.Tensor:
    """Integers as their two 32-bit words, low first: int32 [n, 2]."""
    wide = values.view(torch.int64) if values.dtype == torch.uint64 else values.to(torch.int64)
    return wide.contiguous().view(torch.int32).view(-1, 2)


def _scramble(block: torch.Tensor) -> torch.Tensor:
    return _rotate_left(block * _signed(_C1), 15) * _signed(_C2)


def _mix(state: torch.Tensor, scrambled: torch.Tensor) -> torch.Tensor:
    return _rotate_left(state ^ scrambled, 13).mul_(5).add_(_signed(_M5))


def _finalise(state: torch.Tensor) -> torch.Tensor:
    """Avalanche, in place."""
    state ^= _shift_right(state, 16)
    state *= _signed(_F1)
    state ^= _shift_right(state, 13)
    state *= _signed(_F2)
    state ^= _shift_right(state, 16)
    return state


def _rotate_left(value: torch.Tensor, bits: int) -> torch.Tensor:
    return (value << bits).bitwise_or_(_shift_right(value, 32 - bits))


def _shift_right(value: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical shift: int32 shifts in copies of the sign, which the mask takes off again."""
    return (value >> bits).bitwise_and_((1 << (32 - bits)) - 1)


def _signed(constant: int) -> int:
    return constant - (1 << 32) if constant >= 1 << 31 else constant
