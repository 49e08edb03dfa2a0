# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The two kernels of a verify step with penalties: one judges its windows, one counts afterwards.

They look at every column of the logits once, so that a token which the torch code lists twice is
changed once, without a list. What is changed is to the bit what `penalties` gives: the same
operations in float32 in the same order, each rounded to the type of the logits where torch rounds
it, division as IEEE says it (`div_rn`), and no multiplication fused with an addition (FLAGS).
Where that keeps a logit, rates that ask for nothing keep it here as well: `x - 0` and `x * 1` are
`x`. The one exception is the sign of a zero, which may be the other one where a frequency is
negative and a drafted token is not on the way to the node.

All sizes are given when the kernels run and no alignment is taken for granted, so a kernel is
compiled once for each type of the logits, for chains and for trees: `steps.on` has it done before a
rank is ready.
"""

from __future__ import annotations

import triton
import triton.language as tl

BLOCK = 1024
LINKS = 64  # nodes of a tree that one compiled kernel is good for; a wider tree needs its own
FLAGS = {"enable_fp_fusion": False}


@triton.jit
def _change(places, inside, total, banned, frequency, presence, repetition):
    """Change logits of tokens that were put out `total` times, where that or a ban asks for it."""
    touched = inside & ((total > 0) | banned)
    given = tl.load(places, mask=touched, other=0.0)
    value = given.to(tl.float32)
    taken = frequency * total.to(tl.float32) + presence
    rest = (value - taken).to(given.dtype).to(tl.float32)
    scaled = tl.where(rest < 0, rest * repetition, tl.div_rn(rest, repetition))
    kept = tl.where(total > 0, scaled, value)
    tl.store(places, tl.where(banned, float("-inf"), kept).to(given.dtype), mask=touched)


@triton.jit(
    do_not_specialize=("step", "width", "banning", "nodes", "vocabulary"),
    do_not_specialize_on_alignment=(
        *("logits", "tokens", "child", "sibling", "rows", "lines"),
        *("counts", "rates", "length", "minimum", "stops"),
    ),
)
def judge(
    logits, step,
    tokens, child, sibling,
    rows, lines, counts, rates, length, minimum, stops, width, banning,
    nodes, vocabulary,
    IS_CHAIN: tl.constexpr, WIDEST: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Penalties and the ban of stop tokens, in place: grid [R, vocabulary / COLUMNS, trees: M].

    Args:
        logits: [requests * M, vocabulary], rows `step` apart.
        tokens, child, sibling: as in `tree.Tree`; links are read for trees only.
        rows, lines: int64 [R], places in the batch and in the ledger.
        counts, rates, length, minimum, stops: of the `Ledger`; `stops` has `width` columns, of
            which `banning` are looked at.
        nodes: M.
    """
    request = tl.program_id(0)
    row, line = tl.load(rows + request), tl.load(lines + request)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < vocabulary
    before = tl.load(counts + line * vocabulary + columns, mask=inside, other=0)
    frequency = tl.load(rates + line * 3)
    presence = tl.load(rates + line * 3 + 1)
    repetition = tl.load(rates + line * 3 + 2)
    least = tl.load(minimum + line) - tl.load(length + line)
    is_stop = columns < 0
    for place in range(banning):
        is_stop = is_stop | (columns == tl.load(stops + line * width + place))
    window = tokens + row * nodes
    total = before + (columns == tl.load(window)).to(tl.int32)
    if IS_CHAIN:
        for node in range(nodes):
            if node > 0:
                total += (columns == tl.load(window + node)).to(tl.int32)
            banned = is_stop & (node + 1 < least)
            places = logits + (row * nodes + node) * step + columns
            _change(places, inside, total, banned, frequency, presence, repetition)
    else:
        node = tl.program_id(2)
        at = tl.arange(0, WIDEST)
        children = tl.load(child + row * nodes + at, mask=at < nodes, other=-1).to(tl.int32)
        siblings = tl.load(sibling + row * nodes + at, mask=at < nodes, other=-1).to(tl.int32)
        here = node
        depth = 0
        left = nodes  # no way has more links; what is no tree must not keep the device
        while (here > 0) & (left > 0):
            total += (columns == tl.load(window + here)).to(tl.int32)
            depth += 1
            left -= 1
            older = here
            here = tl.max(tl.where(children == older, at, -1))
            while (here < 0) & (older > 0) & (left > 0):
                left -= 1
                # 0: nothing leads there, and the root is its parent.
                older = tl.max(tl.where(siblings == older, at, 0))
                here = tl.max(tl.where(children == older, at, -1))
        banned = is_stop & (depth + 1 < least)
        places = logits + (row * nodes + node) * step + columns
        _change(places, inside, total, banned, frequency, presence, repetition)


@triton.jit(
    do_not_specialize=("depth", "nodes", "vocabulary"),
    do_not_specialize_on_alignment=(
        *("tokens", "accept_index", "accept_lens", "rows", "lines", "counts", "length"),
    ),
)
def count(
    tokens, accept_index, depth, accept_lens, rows, lines, counts, length, nodes, vocabulary,
    IS_CHAIN: tl.constexpr,
):  # fmt: skip
    """Count what a step put out before its last token: grid [R].

    Args:
        accept_index: integer [requests, depth], running numbers of the accepted nodes; read for
            trees only.
        accept_lens: integer [requests], how many.
    """
    request = tl.program_id(0)
    row, line = tl.load(rows + request), tl.load(lines + request)
    accepted = tl.load(accept_lens + row).to(tl.int32)
    for place in range(accepted):
        node = row * nodes + place
        if not IS_CHAIN:
            node = tl.load(accept_index + row * depth + place).to(tl.int64)
        token = tl.load(tokens + node)
        known = (token >= 0) & (token < vocabulary)
        tl.atomic_add(counts + line * vocabulary + token, 1, mask=known, sem="relaxed")
    tl.store(length + line, tl.load(length + line) + accepted)
