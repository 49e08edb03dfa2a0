"""The project's own mails for upstream: whole, registered as upstream's tests are, in any order.

What their tests do is tried in test/cpu/test_upstream_mails.py.
"""

from __future__ import annotations

import random
import types
from pathlib import Path
from typing import Any

import pytest
from kit.upstream_checkout import Checkout
from vendoring.header import SECTIONS
from vendoring.layout import checkout
from vendoring.mail import Mail, unsent_because
from vendoring.pin import read_pin
from vendoring.series import decode, read_series, touched_paths
from vendoring.unpack import read_member, unpack
from vendoring.upstream import Known, export_upstream
from vendoring.wheel_cache import WHEEL_VARIABLE, cached_path, resolve_any

PATCHES = read_series(checkout())


def _wheel() -> Path | None:
    """The pinned wheel where it can be had without a network."""
    import os

    pin = read_pin(checkout().pin)
    at_hand = bool(os.environ.get(WHEEL_VARIABLE)) or any(
        cached_path(wheel).is_file() for wheel in pin.wheels
    )
    return resolve_any(pin)[1] if at_hand else None


WHEEL = _wheel()
pytestmark = pytest.mark.skipif(WHEEL is None, reason="the pinned wheel is not cached")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mails")


@pytest.fixture(scope="module")
def known() -> Known:
    return Known()


@pytest.fixture(scope="module")
def mails(folder: Path, known: Known) -> list[Mail]:
    """One mail each, tried on clean files while they are made."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv(WHEEL_VARIABLE, str(WHEEL))
        return export_upstream(checkout(), folder / "single", known=known)


@pytest.fixture(scope="module")
def stacked(folder: Path, known: Known) -> list[Mail]:
    """The same to be applied together: a module that two call comes with the first."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv(WHEEL_VARIABLE, str(WHEEL))
        return export_upstream(checkout(), folder / "stacked", stacked=True, known=known)


@pytest.fixture
def clean(tmp_path: Path) -> Checkout:
    """Upstream's files as far as any patch touches them."""
    assert WHEEL is not None
    made = Checkout(tmp_path / "upstream")
    unpack(WHEEL, made.package / "sglang", touched_paths(PATCHES))
    made.git("init", "--quiet")
    made.git("add", "--all", "--force")
    made.git("commit", "--quiet", "--message=as released")
    made.git("tag", "base")
    return made


def test_every_purpose_is_a_mail_or_says_why_not(mails: list[Mail]) -> None:
    assert [mail.slug for mail in mails] == [patch.slug for patch in PATCHES]
    assert [mail.slug for mail in mails if not mail.file and not mail.skipped] == []
    for patch in PATCHES:
        if patch.header.category in ("site", "instrumentation"):
            assert unsent_because(patch.header), f"{patch.slug} is ours alone and would be sent"


def test_nothing_is_lacking(mails: list[Mail]) -> None:
    assert {mail.slug: mail.lacks for mail in mails if mail.lacks} == {}


def test_no_mail_names_this_project(mails: list[Mail], folder: Path) -> None:
    """A maintainer upstream knows neither our patches nor our commands."""
    ours = ("spec_hardening", "sglang_spec", "sglang-spec", "make test", "vendoring", "(patch `")
    for mail in mails:
        if mail.file:
            text = (folder / "single" / mail.file).read_text(errors="surrogateescape")
            found = [word for word in ours if word in text]
            assert not found, f"{mail.file} says {found}"


def test_the_message_has_every_section(mails: list[Mail], folder: Path) -> None:
    for mail in mails:
        if mail.file:
            head = (folder / "single" / mail.file).read_text(errors="surrogateescape")
            message, _, _ = head.partition("\n---\n")
            assert [line[3:] for line in message.split("\n") if line[:3] == "## "] == [*SECTIONS]


def _registrations() -> Any:
    """Upstream's own reader of registrations, out of the wheel; it needs nothing else."""
    assert WHEEL is not None
    source = read_member(WHEEL, "test/ci/ci_register.py")
    assert source is not None
    module = types.ModuleType("ci_register")
    import sys

    sys.modules[module.__name__] = module
    exec(compile(decode(source), "ci_register.py", "exec"), module.__dict__)
    return module


def test_upstreams_collector_takes_every_test(mails: list[Mail]) -> None:
    ci = _registrations()
    root = checkout().root / "test" / "upstream"
    for mail in mails:
        for name in mail.tests:
            path = root / mail.slug / name.removeprefix("test/")
            found, has_main = ci.ut_parse_one_file(str(path))
            assert has_main, f"{path}: CI runs the file, which then runs nothing"
            assert [entry.backend.name for entry in found] == ["CPU"]
            assert found[0].effective_suite == "base-a-test-cpu"
            assert not found[0].disabled and 0 < found[0].est_time < 60
            assert name.startswith("test/registered/unit/")


def _orders(mails: list[Mail]) -> list[list[Mail]]:
    """Orders that the dependencies allow: as written, as late as possible, and by chance."""
    sent = [mail for mail in mails if mail.file]
    found = [sent]
    for seed in range(4):
        choose = random.Random(seed).choice if seed else lambda waiting: waiting[-1]
        order: list[Mail] = []
        while len(order) < len(sent):
            done = {mail.slug for mail in order}
            waiting = [m for m in sent if m not in order and set(m.depends) <= done]
            order.append(choose(waiting))
        found.append(order)
    return found


def test_stacked_mails_apply_in_every_order_their_headers_allow(
    stacked: list[Mail], folder: Path, clean: Checkout
) -> None:
    trees = set()
    for order in _orders(stacked):
        clean.reset()
        clean.take(*(folder / "stacked" / mail.file for mail in order))
        trees.add(clean.git("rev-parse", "HEAD^{tree}"))
    assert len(trees) == 1, "the order makes a difference"


def test_single_mails_apply_to_plain_upstream(
    mails: list[Mail], folder: Path, clean: Checkout
) -> None:
    for mail in mails:
        if mail.file:
            clean.reset()
            slugs = (*mail.after, mail.slug)
            clean.take(*(folder / "single" / f"{slug}.patch" for slug in slugs))
            assert set(mail.files) >= set(clean.changed("AM")) - _brought_by(mail.after, mails)


def _brought_by(slugs: tuple[str, ...], mails: list[Mail]) -> set[str]:
    return {name for mail in mails if mail.slug in slugs for name in mail.files}
