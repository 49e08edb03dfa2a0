"""The tiny pair with a word that ends reasoning, and with pieces of JSON.

A server with `--reasoning-parser` holds a grammar back until that word. The pair's answers do not
change by its words, so prompts can be found in whose answers it comes at a place that is wanted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from itertools import product
from pathlib import Path

from sglang_spec.models import Pair
from sglang_spec.models.tiny import TINY, Oracle
from sglang_spec.models.tiny.plan import BOS, SPECIALS, VOCABULARY
from sglang_spec.models.tiny.tokenizer import words

PARSER = ("--reasoning-parser", "deepseek-r1")
END = 121  # a word that comes early in many answers, and that the half draft can propose
ROLES = {"user": 6, "assistant": 7, "end": 8}
# Pieces that no answer holds of itself: where a grammar wants one, every draft is wrong.
JSON_PIECES = ('{"said":', '"', "}", "true", "false", "1", "2", ",", "[", "]")
FIRST_SPARE = 9
NAMES = {END: "</think>", **dict(enumerate(JSON_PIECES, FIRST_SPARE))}
WORDS = [NAMES.get(token, word) for token, word in enumerate(words())]
SCHEMA = {
    "type": "object",
    "properties": {"said": {"type": "string", "maxLength": 15}},
    "required": ["said"],
    "additionalProperties": False,
}
STRUCTURES = {
    "structures": [{"begin": "t1", "schema": SCHEMA, "end": "t2"}],
    "triggers": ["t1"],
    "at_least_one": True,
}
# By field; what the pair would say anyway, in part or at first, and what it would not.
RULES = {
    "regex": [*(f"(t[0-9]+){{{n}}}" for n in range(1, 5)), "(t[12][0-9]*)+", "(true|false)t[0-9]+"],
    "ebnf": ['root ::= "1" | "2,1"', 'root ::= ("t" [0-9]+)* "1"'],
    "json_schema": [json.dumps(SCHEMA)],
    "structural_tag": [json.dumps(STRUCTURES)],
}


def thinking(pair: Pair, folder: Path) -> Pair:
    """The pair with other names for some tokens."""
    return Pair(renamed(pair.target, folder / "target", dict(enumerate(WORDS))), pair.draft)


def linked(target: Path, folder: Path) -> Path:
    """A copy of a target without its tokenizer's vocabulary."""
    folder.mkdir(parents=True)
    for path in target.iterdir():
        if path.name != "tokenizer.json":
            os.link(path, folder / path.name)
    return folder


def renamed(target: Path, folder: Path, names: Mapping[int, str]) -> Path:
    """A copy of a tiny target whose tokens have other names."""
    from tokenizers import Tokenizer, models

    linked(target, folder)
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    vocabulary = {name: token for token, name in names.items()}
    tokenizer.model = models.WordLevel(vocabulary, unk_token=tokenizer.model.unk_token)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@cache
def prompts(chat: bool = False) -> dict[int, tuple[int, ...]]:
    """Prompts by the place, 0 to 8, at which reasoning first ends in their answers.

    With `chat`, what the chat template makes of a message (`message`).
    """
    oracle = Oracle(TINY)
    before = (BOS, ROLES["user"], 70) if chat else (BOS, *range(70, 110))
    after = (ROLES["end"], ROLES["assistant"]) if chat else ()
    found: dict[int, tuple[int, ...]] = {}
    for pair in product(range(80, 96), range(SPECIALS, VOCABULARY)):
        prompt = (*before, *pair, *after)
        answer = oracle.greedy(prompt, 9)
        if END in answer:
            found.setdefault(answer.index(END), prompt)
    return dict(sorted(found.items()))


def message(prompt: tuple[int, ...]) -> str:
    """The text of the message that a prompt was made from."""
    return " ".join(WORDS[token] for token in prompt[2:-2])
