"""How a batch is cut into groups: everything once, little padding, bounded memory."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from sgl_kernel.attention.plan import Group, Layout, Requests, plan
from unit.sgl_kernel.inputs import quick

WIDTH = 10_000
LAYOUT = Layout(WIDTH, heads_per_kv=3, key_bytes=384, window=0, is_causal=True, dtype=torch.float32)


def make(ends: list[int], new: list[int]) -> Requests:
    starts = [sum(new[:b]) for b in range(len(new))]
    rows = range(3, 3 + len(ends))
    return Requests(tuple(rows), tuple(ends), tuple(new), tuple(starts))


def token_rows(group: Group) -> list[int]:
    if isinstance(group.tokens, slice):
        return list(range(group.tokens.start, group.tokens.stop))
    return group.tokens.tolist()


@quick(80)
@given(
    st.lists(
        st.tuples(st.integers(0, 3000), st.sampled_from([0, 1, 4, 4, 4, 40])),
        min_size=1,
        max_size=24,
    ),
    st.sampled_from([0, 100]),
)
def test_groups_cover_every_request_once(requests: list[tuple[int, int]], window: int) -> None:
    new = [n for _, n in requests]
    ends = [prefix + n for prefix, n in requests]
    layout = LAYOUT._replace(window=window)
    groups = plan(make(ends, new), layout)
    seen = [index for group in groups for index in group.requests.tolist()]
    assert sorted(seen) == [index for index, n in enumerate(new) if n > 0]
    assert sorted(row for group in groups for row in token_rows(group)) == list(range(sum(new)))
    for group in groups:
        cells = group.cells.view(group.batch, group.keys)
        for row, index in zip(cells, group.requests.tolist(), strict=True):
            length = min(ends[index], window + new[index] - 1) if window else ends[index]
            first, last = ends[index] - length, ends[index] - 1
            table_row = (3 + index) * WIDTH
            wanted = torch.arange(first, last + 1) + table_row
            assert new[index] == group.queries
            assert torch.equal(row[group.keys - length :], wanted)
            # Padding repeats the request's own first key.
            assert bool((row[: group.keys - length] == table_row + first).all())


@quick(60)
@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=32))
def test_padding_and_memory_are_bounded(ends: list[int]) -> None:
    for group in plan(make(ends, [1] * len(ends)), LAYOUT._replace(table_width=30_000)):
        kept = sum(ends[index] for index in group.requests.tolist())
        assert group.batch * group.keys - kept <= 512 + kept / 8
        assert group.batch == 1 or group.batch * group.keys * LAYOUT.key_bytes <= 2 << 20


def test_equal_requests_form_one_group() -> None:
    (group,) = plan(make([500] * 8, [4] * 8), LAYOUT)
    assert (group.batch, group.padding, group.tokens) == (8, None, slice(0, 32))


def test_long_extends_stand_alone() -> None:
    assert [group.batch for group in plan(make([300] * 3, [300] * 3), LAYOUT)] == [1, 1, 1]


def test_masks_hide_padding_and_later_tokens() -> None:
    (group,) = plan(make([5, 3], [2, 2]), LAYOUT._replace(heads_per_kv=1))
    assert group.bias is not None
    visible = (group.bias == 0).squeeze(1).int().tolist()
    assert visible == [
        [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
        [[0, 0, 1, 1, 0], [0, 0, 1, 1, 1]],
    ]
