"""Each mail for upstream, alone on clean upstream files: its test passes, and fails without it.

"Without it" keeps the modules and tests that the mail brings and takes back its edits of upstream's
files, so that a test which only imports a new module does not count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.forked_tests import ForkedTests
from kit.upstream_checkout import Checkout, upstream_checkout
from sglang_spec import host
from vendoring.layout import checkout
from vendoring.mail import Mail, unsent_because
from vendoring.series import read_series
from vendoring.upstream import export_upstream

ROOT = Path(__file__).resolve().parents[2]
SENT = [patch.slug for patch in read_series(checkout()) if not unsent_because(patch.header)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mails")


@pytest.fixture(scope="module")
def mails(folder: Path) -> dict[str, Mail]:
    return {mail.slug: mail for mail in export_upstream(checkout(), folder)}


@pytest.fixture(scope="module")
def clean() -> Checkout:
    return upstream_checkout(ROOT / "build")


@pytest.fixture(scope="module")
def runner() -> Iterator[ForkedTests]:
    # Not the project's python/, whose sglang is the patched one.
    environment = {**os.environ, **host.engine_environment()}
    environment["PYTHONPATH"] = str(ROOT / "sgl-kernel" / "src")
    forked = ForkedTests(environment)
    yield forked
    forked.close()


@pytest.mark.parametrize("slug", SENT)
def test_its_test_passes_with_the_mail_and_fails_without(
    slug: str,
    mails: dict[str, Mail],
    folder: Path,
    clean: Checkout,
    runner: ForkedTests,
    tmp_path: Path,
) -> None:
    clean.reset()
    for needed in (*mails[slug].after, slug):
        clean.take(folder / mails[needed].file)
    tests = [clean.folder / name for name in mails[slug].tests]
    assert tests, f"test/upstream/{slug} has no test"
    for test in tests:
        done = runner.run(clean.package, test, tmp_path / "with.log")
        assert done.passed, f"{test.name} with the mail: {done}"
    clean.revert_edits()
    outcomes = [runner.run(clean.package, test, tmp_path / "without.log") for test in tests]
    clean.reset()
    for done in outcomes:
        assert not done.broken, f"without the mail the test cannot even be imported: {done}"
    assert any(done.failed for done in outcomes), f"no test fails without the mail: {outcomes}"
