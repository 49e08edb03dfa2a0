"""The tests that headers name in upstream's layout, which no other run collects."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from vendoring import mutation_record
from vendoring.layout import checkout
from vendoring.series import read_series


def test_they_pass_with_all_patches() -> None:
    """A later patch can break the test of an earlier one, which then proves nothing any more."""
    layout = checkout()
    named = [node for patch in read_series(layout) for node in patch.header.tests]
    nodes = [node for node in named if node.startswith("test/upstream/")]
    assert len(nodes) > 5
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *nodes]
    done = subprocess.run(command, cwd=layout.root, capture_output=True, text=True, check=False)
    passed = re.search(r"^(\d+) passed", done.stdout, re.M)
    assert done.returncode == 0 and passed, done.stdout[-3000:] + done.stderr[-1000:]
    assert int(passed[1]) == len(nodes)


@pytest.mark.full  # quick, but a patch in the making has no row yet
def test_every_patch_has_a_test_that_kills_its_mutant() -> None:
    """The kept table has a row for each, of the patch as it is now, and it says killed."""
    layout = checkout()
    patches = read_series(layout)
    assert mutation_record.due(patches, layout.patches) == []
