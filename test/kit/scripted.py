"""The tiny pair with a tokenizer of its own, so that it says what a test wants it to say.

Which tokens the pair gives after a prompt is known beforehand (`Oracle`), and all of its drafts are
accepted. So a text is cut into pieces, a prompt is looked for whose answer has as many tokens, all
of them different and not taken yet, and these tokens are called by the pieces. Nothing else of the
pair changes: any tag can be made to begin anywhere within an accepted run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sglang_spec.models import Pair
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.models.tiny.plan import BOS, SPECIALS, UNKNOWN
from sglang_spec.models.tiny.tokenizer import words

from kit.thinking import FIRST_SPARE, ROLES, linked


@dataclass(frozen=True)
class Said:
    """A prompt: its text as a message, the ids that the chat template makes of it, those of the
    answer."""

    content: str
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]


def scripted(
    tiny: Pair, folder: Path, scripts: Mapping[str, Sequence[str]]
) -> tuple[Pair, dict[str, Said]]:
    """A pair in `folder` that answers with each script, and how it is asked for it.

    Raises:
        ValueError: the scripts have more tokens in all than can be found.
    """
    said: dict[str, Said] = {}
    names = dict(enumerate(words()))
    taken: set[int] = set()
    longest_first = sorted(scripts, key=lambda name: -len(scripts[name]))
    for name in longest_first:
        pieces = scripts[name]
        said[name] = _prompt(len(pieces), taken)
        taken |= set(said[name].answer_ids)
        for token, piece in zip(said[name].answer_ids, pieces, strict=True):
            names[token] = f"{piece}⟦{token}⟧"  # two tokens of one text need two names
    target = linked(tiny.target, folder / "target")
    _write_tokenizer(tiny.target / "tokenizer.json", target / "tokenizer.json", names)
    return Pair(target, tiny.draft), said


def _prompt(count: int, taken: set[int]) -> Said:
    """A prompt whose answer has `count` different tokens, none of `taken`."""
    oracle = Oracle(TINY)
    table = words()
    for chosen in _contents():
        context = [BOS, ROLES["user"], *chosen, ROLES["end"], ROLES["assistant"]]
        answer = oracle.greedy(context, count)
        if len(set(answer)) == count and not taken & set(answer):
            content = " ".join(table[token] for token in chosen)
            return Said(content, tuple(context), tuple(answer))
    raise ValueError(f"no prompt is answered with {count} new tokens after {len(taken)}")


def _contents() -> Iterator[tuple[int, ...]]:
    """Short prompts of spare words, which no answer holds."""
    spare = range(FIRST_SPARE, SPECIALS)
    return itertools.chain.from_iterable(itertools.product(spare, repeat=n) for n in (1, 2, 3))


def _write_tokenizer(source: Path, path: Path, names: Mapping[int, str]) -> None:
    """The tiny tokenizer with other names, whose decoder joins them and drops what sets them
    apart."""
    from tokenizers import Regex, Tokenizer, decoders, models

    tokenizer = Tokenizer.from_file(str(source))
    vocabulary = {name: token for token, name in names.items()}
    tokenizer.model = models.WordLevel(vocabulary, unk_token=names[UNKNOWN])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(Regex("⟦\\d+⟧"), ""), decoders.Fuse()])
    tokenizer.save(str(path))
