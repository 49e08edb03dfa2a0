"""`sglang-spec doctor kv` by a pair's configs; of a server: `test/cpu/test_kv.py`."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from sglang_spec.doctor.command import doctor
from sglang_spec.models import tiny_pair


def run(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(doctor, ["kv", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_a_pair() -> None:
    pair = tiny_pair()
    code, out, _ = run("--target", pair.target, "--draft", pair.draft, "--kv-gb", 2)
    assert code == 0
    assert out.splitlines()[0] == "2 GB hold 131072 tokens with speculation, 149796 without"
    code, out, _ = run("--target", pair.target, "--draft", pair.draft, "--tp-size", 4, "--json")
    assert json.loads(out)["bytes_per_token"]["target"] == 14336 // 4


def test_a_draft_that_takes_more_than_is_budgeted(tmp_path: Path) -> None:
    target, draft = tmp_path / "target", tmp_path / "draft"
    mla = {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    llama = {"num_hidden_layers": 1, "num_attention_heads": 64, "head_dim": 128}
    for folder, config in ((target, {"text_config": mla}), (draft, llama)):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
    code, out, _ = run("--target", target, "--draft", draft, "--tp-size", 8)
    assert code == 0
    assert "SGLang budgets 1152 for the draft: the pools take 1.041 GB" in out


def test_what_cannot_be_said(tmp_path: Path) -> None:
    code, _, error = run("--target", tmp_path, "--draft", tmp_path)
    assert code == 1 and "config.json" in error
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 2, "sliding_window": 4096}')
    code, _, error = run("--target", tmp_path, "--draft", tmp_path)
    assert code == 1 and "sliding_window: 4096" in error
    assert run("http://127.0.0.1:1")[0] == 1
    assert run()[0] == 2
    assert run("--target", tmp_path)[0] == 2


def test_wrong_numbers_and_configs(tmp_path: Path) -> None:
    pair = tiny_pair()
    for option in ("--tp-size", "--page-size", "--kv-bytes", "--kv-gb"):
        code, _, error = run("--target", pair.target, "--draft", pair.draft, option, 0)
        assert code == 2 and option in error
    for content in (b"[]", b"5", b"\xff", b"{"):
        (tmp_path / "config.json").write_bytes(content)
        code, _, error = run("--target", tmp_path, "--draft", pair.draft)
        assert code == 1 and str(tmp_path / "config.json") in error and "config" in error
