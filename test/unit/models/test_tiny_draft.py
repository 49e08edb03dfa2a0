"""The tiny draft is always right, and every fault of what it is given shows."""

from __future__ import annotations

import functools
import random

import pytest
from sglang_spec.models import Pair
from sglang_spec.models.tiny import TINY, TINY_HALF, Oracle, Plan, tiny_pair
from sglang_spec.models.tiny.plan import BOS, DRAFT_FAULT, SPECIALS, VOCABULARY

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from unit.models.eagle3_reference import Draft  # noqa: E402 - needs torch

DTYPES = [torch.bfloat16, torch.float32]
LENGTH, STEPS = 170, 4


def prompt(length: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [BOS, *(rng.randrange(SPECIALS, VOCABULARY) for _ in range(length - 1))]


@functools.cache
def target(pair: Pair, dtype: torch.dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(pair.target, dtype=dtype).eval()


class Sequence:
    """A prompt with its first greedy token, and a draft that has cached its rows.

    Args:
        states: for each slot, the index into the target's hidden states (layer id + 1).
        shift: positions by which the captured states are late.
        damage: changes the draft's tensors before anything is computed.
    """

    def __init__(
        self,
        plan: Plan,
        pair: Pair,
        ids: list[int],
        dtype,
        *,
        states=None,
        shift: int = 0,
        damage=lambda state: None,
    ) -> None:
        self.oracle = Oracle(plan)
        self.draft = Draft.load(pair.draft, pair.target, dtype)
        damage(self.draft.state)
        model = target(pair, dtype).model
        with torch.no_grad():
            out = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        slots = states if states is not None else [layer + 1 for layer in plan.capture]
        captured = torch.cat([out[i][0] for i in slots], -1).roll(shift, 0)
        self.known = [*ids, self.oracle.next_token(ids)]
        self.hidden = self.draft.extend(self.draft.fuse(captured), self.known[1:])[-1:]

    def propose(self, steps: int = STEPS) -> list[int]:
        """Drafts along the oracle's tokens, as if each were accepted."""
        rows, hidden, drafted = len(self.draft.keys), self.hidden, []
        for token in self.wanted(steps):
            drafted.append(self.draft.pick(hidden))
            hidden = self.draft.extend(hidden, [token])
        self.draft.forget(rows)
        return drafted

    def wanted(self, steps: int = STEPS) -> list[int]:
        return self.oracle.greedy(self.known, steps)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [1, 2, 9, LENGTH])
def test_every_draft_is_right(tiny: Pair, length: int, dtype) -> None:
    for seed in range(4):
        sequence = Sequence(TINY, tiny, prompt(length, seed), dtype)
        assert sequence.propose(12) == sequence.wanted(12)


def test_drafts_stay_right_beyond_the_window(tiny: Pair) -> None:
    sequence = Sequence(TINY, tiny, prompt(TINY.window + 30, 1), torch.bfloat16)
    assert sequence.propose() == sequence.wanted()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_half_vocabulary_is_right_where_it_can_be(dtype) -> None:
    pair, known = tiny_pair(TINY_HALF), set(TINY_HALF.draft_tokens)
    for seed in range(4):
        sequence = Sequence(TINY_HALF, pair, prompt(30, seed), dtype)
        for got, want in zip(sequence.propose(12), sequence.wanted(12), strict=True):
            assert (got == want) == (want in known)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_logits_have_the_targets_margin(tiny: Pair, dtype) -> None:
    sequence = Sequence(TINY, tiny, prompt(50, 2), dtype)
    row = sequence.draft.logits(sequence.hidden)[0].float()
    want = torch.tensor(sequence.oracle.logits(sequence.known))
    torch.testing.assert_close(row, want, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "states",
    [(3, 4, 6), (1, 4, 6), (2, 5, 6), (2, 3, 6), (2, 4, 5), (4, 2, 6), (6, 4, 2), (0, 4, 6)],
    ids=str,
)
def test_a_wrong_capture_is_never_accepted(tiny: Pair, states: tuple[int, int, int]) -> None:
    """One layer off, slots swapped, order reversed, the embedding in place of a layer."""
    sequence = Sequence(TINY, tiny, prompt(40, 3), torch.bfloat16, states=states)
    assert sequence.propose() == [DRAFT_FAULT] * STEPS


@pytest.mark.parametrize("shift", [1, -1])
def test_states_of_another_position_are_not_accepted(tiny: Pair, shift: int) -> None:
    wrong = Sequence(TINY, tiny, prompt(40, 4), torch.bfloat16, shift=shift)
    assert wrong.propose(1) != wrong.wanted(1)


@pytest.mark.parametrize("row", [0, 1, 60, LENGTH - 9, LENGTH - 2])
@pytest.mark.parametrize("head", [slice(None), slice(5, 6)], ids=["row", "one head"])
def test_a_zeroed_row_shows_at_once(tiny: Pair, row: int, head: slice) -> None:
    sequence = Sequence(TINY, tiny, prompt(LENGTH, 5), torch.bfloat16)
    sequence.draft.keys[row, head] = 0
    sequence.draft.values[row, head] = 0
    # The first proposal was made before the damage.
    assert sequence.propose(3) == [sequence.wanted(1)[0], DRAFT_FAULT, DRAFT_FAULT]


def test_a_skipped_extend_shows_at_its_distances(tiny: Pair) -> None:
    """A row of another token, well-formed: seen bit by bit, one near distance after the other."""
    ids = prompt(60, 6)
    flipped = [*ids[:-1], SPECIALS + (ids[-1] - SPECIALS ^ 0xFF)]
    right, wrong = (Sequence(TINY, tiny, i, torch.bfloat16) for i in (ids, flipped))
    right.draft.keys[-1], right.draft.values[-1] = wrong.draft.keys[-1], wrong.draft.values[-1]
    # Step i computes the row i positions on, and reads the wrong row for one bit if i is 1 … 8.
    pairs = zip(right.propose(12), right.wanted(12), strict=True)
    assert [i for i, (got, want) in enumerate(pairs) if got != want] == [*range(1, 9), 9]


def test_a_wrong_position_shows(tiny: Pair) -> None:
    ids = prompt(60, 7)
    sequence = Sequence(TINY, tiny, ids, torch.bfloat16)
    # Every row in its neighbour's place: keys say another position than the order of rows.
    keys, values = sequence.draft.keys, sequence.draft.values
    sequence.draft.keys, sequence.draft.values = keys, values.roll(1, 0)
    assert sequence.propose(2)[1] != sequence.wanted(2)[1]


@pytest.mark.parametrize("rank", range(8))
def test_a_missing_shard_of_any_matrix_shows_at_once(tiny: Pair, rank: int) -> None:
    names = {f"self_attn.{n}_proj": 0 for n in "qkv"} | {"self_attn.o_proj": 1}
    names |= {"mlp.gate_proj": 0, "mlp.up_proj": 0, "mlp.down_proj": 1}
    for name, axis in names.items():

        def damage(state: dict, name: str = f"midlayer.{name}.weight", axis: int = axis) -> None:
            state[name].chunk(8, axis)[rank].zero_()

        sequence = Sequence(TINY, tiny, prompt(40, 8), torch.bfloat16, damage=damage)
        assert sequence.propose(2) == [DRAFT_FAULT] * 2, name
