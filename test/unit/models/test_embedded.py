"""The draft checkpoint in the repository is the one its card describes, and can be sharded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sglang_spec.models import cache, embedded, held_out
from sglang_spec.models.cache import ModelError


def test_the_card_names_the_files_hashes() -> None:
    folder = embedded.draft_folder()
    card = (folder / "README.md").read_text()
    for name in ("model.safetensors", "config.json", "held_out.jsonl"):
        assert f"| `{name}` | `{cache.file_sha256(folder / name)}` |" in card


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_draft_divides(ranks: int) -> None:
    config = json.loads((embedded.draft_folder() / "config.json").read_text())
    for key in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        assert config[key] % ranks == 0, key
    # Vocabularies are padded to multiples of 64 before they are divided.
    for key in ("vocab_size", "draft_vocab_size"):
        assert config[key] % (64 * ranks) == 0, key


def test_held_out_prompts() -> None:
    rows = [json.loads(line) for line in held_out().read_text().splitlines()]
    assert len(rows) == 116
    assert {row["kind"] for row in rows} == {"chat", "humaneval", "docs"}
    assert all(row["prompt_ids"] and row["greedy_answer_ids"] for row in rows)


def test_absent_draft_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(embedded.DRAFT_VARIABLE, str(tmp_path))
    with pytest.raises(ModelError, match=f"set {embedded.DRAFT_VARIABLE}"):
        embedded.draft_folder()
