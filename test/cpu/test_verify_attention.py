"""A server whose verify is a decode, on upstream's triton kernels, which triton interprets.

The interpreter needs seconds for a forward, so there is no self-test, no warm-up and few tokens.
The path from the flag to the tokens is the one that a GPU takes without graphs. Rows that end two
tokens too early give other tokens; rows that miss their own token only do not on this pair, and are
what `test/unit/spec_hardening/test_verify_attention_on_cpu.py` finds.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kit import decode_checks
from sglang_spec.client import Client
from sglang_spec.models import tiny_pair
from sglang_spec.models.tiny import TINY_HALF, Oracle
from sglang_spec.server import Launch, Server, Speculation

SLOW = ("--skip-server-warmup", "--skip-speculative-self-test")
SMALL = ("--context-length", "512", "--triton-attention-num-kv-splits", "2")
VERIFY = ("--attention-backend", "triton", "--speculative-verify-attention", "decode")


@pytest.mark.full  # two minutes for nine tokens, as the kernels are interpreted
def test_tokens_are_those_of_no_speculation(tmp_path: Path) -> None:
    pair = tiny_pair(TINY_HALF)
    launch = Launch(
        pair.target,
        Speculation(pair.draft, 3, 1, 4),
        "float32",
        (*VERIFY, *SMALL, *SLOW),
        {"TRITON_INTERPRET": "1"},
    )
    with Server(launch, tmp_path / "log") as server:
        server.wait_ready(600)
        client, oracle = Client(server.url, timeout=900), Oracle(TINY_HALF)
        asked = decode_checks.prompts(2, seed=3, longest=6)
        answers = client.generate_batch(asked, 9, ignore_eos=True)
        client.close()
        decode_checks.equal_to_oracle(oracle, asked, answers, 9)
        assert all(answer.cycles > 0 for answer in answers)
        assert sum(sum(answer.correct_drafts[1:]) for answer in answers) > 0, "no draft was right"
    assert "Verify attends as a decode of 4 rows a request" in (tmp_path / "log").read_text(
        errors="replace"
    )
