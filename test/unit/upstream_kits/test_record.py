"""The list of upstream's kits is complete, and its record tells better from worse."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from kit.upstream import site
from sglang_spec.models import Pair
from upstream_kits import __main__ as program
from upstream_kits import compare, page, record, servers
from upstream_kits.kits import ANY, KITS
from upstream_kits.reasons import REASONS
from upstream_kits.servers import CONTROL, PATCHED, PLAIN, SETUPS

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "test/results/upstream_kits.json"
PAGE = ROOT / "docs/upstream-kits.md"


def shipped() -> set[str]:
    """`module.Class` of each class with test methods in `sglang/test/kits`, else `module`."""
    found = set()
    for path in sorted((site() / "sglang/test/kits").glob("*")):
        if path.is_dir() and (path / "__init__.py").is_file():
            found.add(path.name)
        if path.suffix != ".py" or path.stem == "__init__":
            continue
        classes = [
            node.name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.ClassDef)
            and any(
                isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
                for one in node.body
            )
        ]
        found |= {f"{path.stem}.{name}" for name in classes} or {path.stem}
    return found


def test_every_kit_in_the_wheel_is_listed() -> None:
    listed = {kit.key for kit in KITS}
    whole = {kit.module for kit in KITS if not kit.name}
    missing = {key for key in shipped() if key not in listed and key.partition(".")[0] not in whole}
    assert not missing, f"neither run nor said why not: {sorted(missing)}"


def test_nothing_is_listed_that_does_not_ship() -> None:
    modules = {key.partition(".")[0] for key in shipped()}
    assert {kit.module for kit in KITS} <= modules
    assert {kit.key for kit in KITS if kit.name and not kit.why_not(ANY)} <= shipped()


def test_reasons_are_of_tests_that_are_run() -> None:
    run = tuple(f"{kit.key}." for kit in KITS if not kit.why_not(ANY))
    assert not [name for name in REASONS if not name.startswith(run)]
    source = "".join(path.read_text() for path in (site() / "sglang/test/kits").glob("*_kit*.py"))
    assert not [name for name in REASONS if f"def {name.rpartition('.')[2]}(" not in source]


def test_each_kit_has_a_server() -> None:
    assert {kit.server for kit in KITS} == set(SETUPS)


def result(*failed: str, passed: tuple[str, ...] = ()) -> dict[str, Any]:
    lines = [
        *({"test": t, "outcome": "failed", "message": f"{t} broke", "seconds": 1} for t in failed),
        *({"test": t, "outcome": "passed", "message": "", "seconds": 1} for t in passed),
    ]
    return record.entry(lines, 0)


def table(**variants: Any) -> dict[str, Any]:
    names = {"patched": PATCHED, "plain": PLAIN, "control": CONTROL}
    return {"kits": {"a.B": {"gpu": {names[name]: one for name, one in variants.items()}}}}


def runs(test: str, passed: int, of: int) -> dict[str, Any]:
    """The entry of a kit with one test that passed in so many of its runs."""
    lines = [{"test": test, "outcome": "passed", "message": "", "seconds": 1}] * passed
    lines += [{"test": test, "outcome": "failed", "message": "broke", "seconds": 1}] * (of - passed)
    return record.entry(lines, 0)


def test_worse_than_plain_is_told() -> None:
    patched = result("test_x", passed=("test_y",))
    assert compare.worse(table(patched=patched, plain=result(passed=("test_x",))), "gpu")
    assert not compare.worse(table(patched=patched, plain=result("test_x")), "gpu")
    assert not compare.worse(table(patched=patched), "gpu")
    alone = table(patched=patched, control=result(passed=("test_x",)))
    assert not compare.worse(alone, "gpu")  # plain was not run yet


def test_where_plain_does_not_start_the_control_counts() -> None:
    patched, none = result("test_x"), record.not_run("does not start: no AMX")
    whole, broken = result(passed=("test_x",)), result("test_x")
    assert compare.worse(table(patched=patched, plain=none, control=whole), "gpu")
    assert not compare.worse(table(patched=patched, plain=none, control=broken), "gpu")


def test_a_test_that_passes_sometimes_is_flaky_and_worse_than_one_that_always_does() -> None:
    sometimes, rarely, always = runs("test_x", 3, 5), runs("test_x", 1, 5), runs("test_x", 5, 5)
    assert sometimes["flaky"] == [{"test": "test_x", "message": "broke", "passed": 3, "of": 5}]
    assert (sometimes["passed"], sometimes["failed"], sometimes["outcome"]) == ([], [], "failed")
    assert compare.worse(table(patched=sometimes, plain=always), "gpu")
    assert not compare.worse(table(patched=rarely, plain=sometimes), "gpu")  # chance
    assert compare.worse(table(patched=runs("test_x", 0, 5), plain=rarely), "gpu")
    assert not compare.worse(table(patched=always, plain=rarely), "gpu")
    drawn = table(patched=sometimes, plain=always, control=rarely)
    assert not compare.worse(drawn, "gpu")
    assert "`test_x` passes always on plain and sometimes both" in compare.verdict(drawn, "gpu")
    never = runs("test_x", 0, 5)
    assert compare.worse(table(patched=never, plain=always, control=rarely), "gpu")
    assert list(compare.better(table(patched=always, plain=rarely), "gpu")) == ["a.B.test_x"]


@pytest.mark.parametrize(
    ("patched", "plain", "control", "said"),
    [
        ((5, 5), (5, 5), (5, 5), "of the 1 tests that ran on both, 1 passed on both."),
        (
            (1, 1),
            (0, 1),
            (0, 1),
            "never worse than plain: of the 1 tests that ran on both, 1 passed only",
        ),
        ((0, 1), (0, 1), (0, 1), "1 failed on both. Of those that failed on both, 1 fail without"),
        ((2, 5), (3, 5), (5, 5), "1 flaky on one of them"),
        (
            (0, 1),
            (1, 1),
            (1, 1),
            "**Patched was worse than plain in 1** (`test_x`, see below): of the 1 tests",
        ),
    ],
)
def test_the_page_says_in_a_sentence_what_came_out(
    patched: tuple[int, int], plain: tuple[int, int], control: tuple[int, int], said: str
) -> None:
    each = {"patched": patched, "plain": plain, "control": control}
    content = table(**{name: runs("test_x", *counts) for name, counts in each.items()})
    assert said in compare.verdict(content, "gpu")


def add(file: Path, code: str, one: dict[str, Any], **more: bool) -> dict[str, Any]:
    """The entry that the record has of the kit after this one was written."""
    kits = {"a.B": {"gpu": {PATCHED: {**one, "code": code, **more}}}}
    content = record.write(file, {"provenance": {}, "kits": kits})
    found: dict[str, Any] = content["kits"]["a.B"]["gpu"][PATCHED]
    return found


def known(file: Path, code: str) -> dict[str, set[str]]:
    return record.known(record.read(file), "gpu", PATCHED, code)


def test_tests_that_were_run_again_replace_theirs_in_a_whole_result(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    add(file, "1", result("test_x", "test_z", passed=("test_y",)))
    one = add(file, "1", runs("test_x", 2, 3), part=True)
    assert [bad["test"] for bad in one["failed"]] == ["test_z"]
    assert [bad["test"] for bad in one["flaky"]] == ["test_x"]
    assert (one["passed"], one["runs"], one["outcome"]) == (["test_y"], 3, "failed")
    assert known(file, "1") == {"a.B": set()}
    assert add(file, "1", runs("test_x", 3, 3), part=True)["passed"] == ["test_y", "test_x"]
    add(file, "2", runs("test_x", 3, 3), part=True)  # of other code: what was known says nothing
    assert known(file, "2") == {"a.B": {"test_x"}}


def test_a_kit_is_run_in_pieces(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    add(file, "1", result("test_x"), part=True)
    assert known(file, "1") == {"a.B": {"test_x"}}
    add(file, "1", result(passed=("test_y",)), part=True)
    assert known(file, "1") == {"a.B": {"test_x", "test_y"}}
    one = add(file, "1", record.entry([], 0), rest=True)  # there were no more
    assert (one["passed"], [bad["test"] for bad in one["failed"]]) == (["test_y"], ["test_x"])
    assert known(file, "1") == {"a.B": set()}


def test_what_the_record_has_of_this_code_is_not_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "record.json"
    whole, part, other, *rest = (kit.key for kit in KITS)
    entry = {**runs("test_x", 1, 1), "code": "now"}
    entries = {whole: entry, part: {**entry, "part": True}, other: {**entry, "code": "before"}}
    kits = {key: {"gpu": {PATCHED: one}} for key, one in entries.items()}
    record.write(file, {"provenance": {}, "kits": kits})
    monkeypatch.setattr(servers, "code", lambda variant: "now")
    pair = Pair(tmp_path, tmp_path)

    def wanted(variant: str, *words: str) -> list[str]:
        run = program.Run(program.arguments(["--output", str(file), *words]), pair, variant, "gpu")
        return [kit.key for kit in KITS if run.wants(kit)]

    assert wanted(PATCHED, "--due") == [part, other, *rest]
    assert wanted(PLAIN, "--due") == wanted(PATCHED) == [kit.key for kit in KITS]


def test_a_process_that_ended_early_is_not_a_pass() -> None:
    assert record.entry([], 139)["outcome"] == record.NOT_RUN
    assert "139" in record.entry([], 139)["reason"]


def test_a_package_that_a_kit_lacks_is_said() -> None:
    said = "No module named 'tabulate' on this host"
    line = {"test": "", "outcome": "not run", "message": said, "seconds": 0}
    assert record.entry([line], 0) == record.not_run(said)


def test_a_test_that_took_too_long_neither_passed_nor_failed() -> None:
    late = {"test": "test_x", "outcome": "cut off", "message": "not done", "seconds": 9}
    good = {"test": "test_y", "outcome": "passed", "message": "", "seconds": 1}
    one = record.entry([late, good], 0)
    assert (one["outcome"], one["passed"], one["failed"]) == ("passed", ["test_y"], [])
    assert one["cut_off"] == {"test_x": "not done"}
    alone = record.settled({**record.entry([late], 0), "code": "1"})
    assert alone == {"outcome": record.NOT_RUN, "reason": "test_x: not done", "code": "1"}
    assert record.entry([good], 0, {"test_z": "too long"})["cut_off"] == {"test_z": "too long"}


def test_runs_of_two_devices_become_one_record(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    for device in ("cpu", "gpu"):
        one = {
            "provenance": {device: {"date": "today"}},
            "kits": {"a.B": {device: {PATCHED: result(passed=("test_x",))}}},
        }
        record.write(file, one)
    content = json.loads(file.read_text())
    assert set(content["kits"]["a.B"]) == set(content["provenance"]) == {"cpu", "gpu"}


def test_the_page_is_written_at_each_step_of_a_record(tmp_path: Path) -> None:
    """Also before the patched tree was run, or with results of several patch sets."""
    stamp = {"sglang": "1", "patch_set": "abc", "patches": []}
    about = {"date": "2026-11-30", "gpus": [{"name": "H200"}], "load_average": 1, "backend": "x"}
    content = table(plain=result("test_x", passed=("test_y",)))
    content["provenance"] = {"gpu": {**about, PATCHED: stamp, PLAIN: stamp}}
    assert "| `a.B` | not run | **1/2** | not run |" in page.text(content)
    row = content["kits"]["a.B"]["gpu"]
    row[PATCHED] = {**runs("test_x", 2, 3), "code": "new"}
    content["kits"]["a.C"] = {"gpu": {PATCHED: {**runs("test_x", 1, 1), "code": "old"}}}
    text = page.text(content)
    assert "`new` (1 kits), `old` (1 kits)" in text
    assert "- `a.B.test_x`: passed patched 2 of 3, plain never." in text
    assert compare.verdict(content, "gpu") in text


@pytest.mark.skipif(not RECORD.is_file(), reason="no kit has been run yet")
def test_the_page_is_that_of_the_record() -> None:
    assert PAGE.read_text() == page.text(json.loads(RECORD.read_text()))
