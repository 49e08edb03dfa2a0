"""The mails for upstream, each on a whole clean upstream tree: its test passes, and fails without.

`make mails` keeps the result in patches/mails.md. In every run the same is done on a made-up
upstream (test/unit/vendoring/test_vendoring_mail_trials.py), and the real mails are applied there.
"""

from __future__ import annotations

import pytest
from sglang_spec import host
from vendoring.layout import checkout
from vendoring.mail_trial import try_mails


@pytest.mark.full  # three imports of SGLang a mail: 10 to 20 minutes
def test_every_mail_stands_alone_and_its_test_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in host.engine_environment().items():
        monkeypatch.setenv(name, value)
    trials = [tried.trial for tried in try_mails(checkout(), [])]
    assert {one.slug: one for one in trials if one.verdict != "proven"} == {}
