"""`docs/fidelity.md` shows what the table says, and every verdict has a test."""

from __future__ import annotations

from kit.fidelity_page import PAGE, missing_tests, renewed


def test_page_is_current() -> None:
    page = PAGE.read_text()
    assert renewed(page) == page, "run `python -m kit.fidelity_page` in test/"


def test_every_named_test_is_there() -> None:
    assert missing_tests() == []
