"""Chat prompts as token ids, through the target's own template."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

_MARK = "@@user@@"


class Chat:
    """The template and tokenizer of a target.

    Attributes:
        before, after: token ids around a user's turn, up to where the answer begins.
        end: the token that ends a turn.
    """

    def __init__(self, target: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(target)
        before, _, after = self._render(_MARK).partition(_MARK)
        self.before, self.after = self._ids(before), self._ids(after)
        self.end = int(self._tokenizer.eos_token_id)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """A prompt of one user turn each."""
        if not texts:
            return []
        rendered = [self._render(text) for text in texts]
        made: list[list[int]] = self._tokenizer(rendered, add_special_tokens=False)["input_ids"]
        return made

    def text(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens."""
        made: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return made

    def _render(self, text: str) -> str:
        made: str = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
        )
        return made

    def _ids(self, text: str) -> list[int]:
        made: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return made
