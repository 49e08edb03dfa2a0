"""The lanes of the suite name files that exist, and no file with servers is left to chance."""

from __future__ import annotations

from pathlib import Path

from kit.lanes import ANSWERS, COMPARE, SERVERS, lane

ROOT = Path(__file__).resolve().parents[2]


def test_each_file_that_compares_answers_exists() -> None:
    for name in COMPARE:
        file = f"test/cpu/test_{name}.py"
        assert (ROOT / file).is_file()
        assert lane(file) == ANSWERS


def test_all_other_files_with_servers_share_a_lane() -> None:
    files = {
        f"test/{folder}/{file.name}"
        for folder in ("cpu", "gpu")
        for file in (ROOT / "test" / folder).glob("test_*.py")
    }
    lanes = [lane(file) for file in sorted(files)]
    assert set(lanes) == {ANSWERS, SERVERS}
    assert lanes.count(SERVERS) > 20


def test_a_unit_test_file_is_its_own_lane() -> None:
    assert lane("test/unit/test_lanes.py") == "test/unit/test_lanes.py"
