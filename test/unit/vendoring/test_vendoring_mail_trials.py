"""`mails`: each mail's test on a clean tree with the mail, without its edits, and among all mails.

On a made-up upstream, whose tests take no time; the project's own mails are tried by `make mails`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.vendoring_project import Project
from vendoring.mail import Mail
from vendoring.mail_trial import last_first, outcome
from vendoring.testfiles import TestFiles

TEST = """\
import unittest

from sglang.srt.{module} import {name}


class TestWidth(unittest.TestCase):
    def test_width(self):
        {body}


if __name__ == "__main__":
    unittest.main()
"""
WIDTH = "self.assertEqual(decode([1, 2, 3]), [1, 2])"


def add_test(project: Project, slug: str, name: str, body: str, module: str = "engine") -> None:
    path = project.root / "test" / "upstream" / slug / "registered" / f"test_{slug}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TEST.format(module=module, name=name, body=body))


def tried(project: Project, *arguments: str) -> dict[str, dict[str, Any]]:
    done = project.command("mails", "--json", *arguments)
    assert done.stdout, done.stderr
    rows = {row["slug"]: row for row in json.loads(done.stdout)}
    assert (done.returncode == 0) == all(row["verdict"] == "proven" for row in rows.values())
    return rows


def test_a_mail_whose_test_needs_it(patched: Project) -> None:
    """The other mail brings no test, which is a finding of its own."""
    add_test(patched, "widen", "decode", WIDTH)
    found = tried(patched, "--output", str(patched.layout.patches))
    widen = found["widen"]
    assert (widen["alone"], widen["without"], widen["together"]) == ("passed", "failed", "passed")
    assert widen["verdict"] == "proven" and "Lists differ: [1] != [1, 2]" in widen["detail"]
    assert found["more-steps"]["verdict"] == "unproven"
    assert found["more-steps"]["detail"] == "the mail brings no test"
    assert "patches/mails.md: more-steps is unproven" in patched.command("check").stdout
    table = (patched.layout.patches / "mails.md").read_text()
    assert "| widen |  | passed | failed | passed | proven |" in table


@pytest.mark.parametrize(
    ("name", "body", "outcomes", "verdict"),
    [
        ("decode", "self.assertEqual(decode([]), [])", ("passed", "passed", "passed"), "needless"),
        ("decode", "self.fail('anyway')", ("failed", "failed", "failed"), "unproven"),
        ("decode", "self.skipTest('no GPU')", ("skipped", "skipped", "skipped"), "unproven"),
        ("nothing", "pass", ("broken", "broken", "broken"), "unproven"),
    ],
)
def test_a_mail_whose_test_says_nothing(
    patched: Project, name: str, body: str, outcomes: tuple[str, ...], verdict: str
) -> None:
    add_test(patched, "widen", name, body)
    row = tried(patched, "widen")["widen"]
    assert (row["alone"], row["without"], row["together"]) == outcomes
    assert row["verdict"] == verdict


def test_a_test_that_cannot_be_read_without_the_edit_proves_nothing(patched: Project) -> None:
    """It would fail for any patch that adds a name."""
    patched.patch("named", "srt/engine.py", "LINE_9 = 9\n", "LINE_9 = 9\nNAMED = 1\n")
    add_test(patched, "named", "NAMED", "self.assertEqual(NAMED, 1)")
    row = tried(patched, "named")["named"]
    assert (row["alone"], row["without"], row["verdict"]) == ("passed", "broken", "unproven")


def test_a_mail_that_another_one_breaks(patched: Project) -> None:
    """Each stands alone; together the second takes from the first what its test looks at."""
    patched.patch("other", "srt/args.py", "LINE_9 = 9\n", "LINE_9 = 9\nArgs.steps = 5\n")
    add_test(patched, "more-steps", "Args", "self.assertEqual(Args.steps, 4)", "args")
    row = tried(patched, "more-steps")["more-steps"]
    assert (row["alone"], row["without"], row["together"]) == ("passed", "failed", "failed")
    assert row["verdict"] == "unproven"


def test_a_row_gets_stale_with_its_mail_and_other_rows_stay(patched: Project) -> None:
    folder = patched.layout.patches
    add_test(patched, "widen", "decode", WIDTH)
    add_test(patched, "more-steps", "Args", "self.assertEqual(Args.steps, 4)", "args")
    tried(patched, "--output", str(folder))
    text = (folder / "mails.md").read_text().split("---|\n")[1]
    assert text.count("| proven |") == 2 and "stale" not in text
    add_test(patched, "widen", "decode", WIDTH + "  # looked at once more")
    tried(patched, "more-steps", "--output", str(folder))
    text = (folder / "mails.md").read_text()
    assert "| proven, stale |" in text and text.count("| proven |") == 1
    assert set(tried(patched, "--due", "--output", str(folder))) == {"widen"}
    assert tried(patched, "--due", "--output", str(folder)) == {}
    assert [row["slug"] for row in json.loads((folder / "mails.json").read_text())["mails"]] == [
        "widen",
        "more-steps",
    ]


def test_a_mail_that_does_not_exist(patched: Project) -> None:
    done = patched.command("mails", "gone")
    assert done.returncode == 1 and "value: gone" in done.stderr


# Seconds. What does not hang takes less than one, and more where others have the processors.
LIMITS = ("3", "12", "48")


def test_a_test_that_hangs_is_a_failure(patched: Project) -> None:
    body = "import time; time.sleep(600 if decode([1, 2]) == [1] else 0)"
    add_test(patched, "widen", "decode", body)
    for seconds in LIMITS:
        row = tried(patched, "widen", "--timeout", seconds)["widen"]
        assert row["without"] == "timeout"
        if row["alone"] != "timeout":
            break
    assert (row["alone"], row["verdict"]) == ("passed", "proven")


AT_ONCE = """\
#!/bin/sh
read request
printf '{"pid": %s}\\n{"status": 3}\\n' $$
read end
"""


def test_two_answers_that_come_at_once_are_two(tmp_path: Path) -> None:
    """As of a test that is done before anybody asks; the second must not wait for its limit."""
    python = tmp_path / "python"
    python.write_text(AT_ONCE)
    python.chmod(0o700)
    log = tmp_path / "log"
    log.write_text("said")
    with TestFiles(str(python), log, 5.0, []) as files:
        assert files.run("test.py", tmp_path, (tmp_path,)) == (3, "said")


def test_what_unittest_prints_is_read(tmp_path: Path) -> None:
    assert outcome(0, "..\nRan 2 tests in 0.1s\n\nOK (skipped=1)\n").outcome == "passed"
    assert outcome(0, "ss\nRan 2 tests in 0.1s\n\nOK (skipped=2)\n").outcome == "skipped"
    assert outcome(0, "\nRan 0 tests in 0.0s\n\nNO TESTS RAN\n").outcome == "skipped"
    assert outcome(0, "nothing at all").outcome == "broken"
    failed = outcome(
        1, "ERROR: test_a (m.T)\n----\nTraceback\n  x\nKeyError: 3\n\nRan 1 test in 1s\n"
    )
    assert failed == ("failed", "test_a (m.T): KeyError: 3")


def test_order_is_as_far_from_the_written_one_as_it_may_be() -> None:
    mails = [
        Mail("a", "a.patch"),
        Mail("b", "b.patch", depends=("a",)),
        Mail("kept", skipped="ours alone"),
        Mail("c", "c.patch"),
        Mail("d", "d.patch", depends=("b",)),
    ]
    assert [mail.slug for mail in last_first(mails)] == ["c", "a", "b", "d"]
