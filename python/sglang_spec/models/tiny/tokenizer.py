"""Tokenizer of the tiny pair: one word per token, so that text and ids tell the same."""

from __future__ import annotations

import json
from pathlib import Path

from sglang_spec.models.tiny.plan import (
    BOS,
    EOS,
    MAX_POSITIONS,
    SPECIALS,
    UNKNOWN,
    VOCABULARY,
)

_NAMED = ("<bos>", "<eos>", "<unk>", "<target-fault>", "<draft-fault>")
_ROLES = ("<system>", "<user>", "<assistant>", "<end>")
CHAT_TEMPLATE = (
    "{{ '<bos>' }}"
    "{% for message in messages %}"
    "{{ ' <' + message['role'] + '> ' + message['content'] + ' <end>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ ' <assistant>' }}{% endif %}"
)


def words() -> list[str]:
    """The vocabulary in id order: named tokens, roles, spare ones, then `t0` to `t255`."""
    named = [*_NAMED, *_ROLES]
    spare = [f"<spare{index}>" for index in range(len(named), SPECIALS)]
    return [*named, *spare, *(f"t{index}" for index in range(VOCABULARY - SPECIALS))]


def write(folder: Path) -> None:
    """Writes `tokenizer.json`, its settings and the chat template into `folder`.

    Plain text gets a BOS in front. Faults are ordinary words, so that they show in answers.
    """
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

    table = words()
    vocabulary = {word: index for index, word in enumerate(table)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=table[UNKNOWN]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    hidden = [table[BOS], table[EOS], *_ROLES]
    tokenizer.add_special_tokens([AddedToken(w, special=True, normalized=False) for w in hidden])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{table[BOS]} $A", special_tokens=[(table[BOS], BOS)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": table[BOS],
        "eos_token": table[EOS],
        "unk_token": table[UNKNOWN],
        "pad_token": table[EOS],
        "model_max_length": MAX_POSITIONS,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    text = json.dumps(settings, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
