"""The list of upstream's kits is complete, and its record tells better from worse."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from kit.upstream import site
from upstream_kits import page, record
from upstream_kits.kits import ANY, KITS
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


def test_worse_than_plain_is_told() -> None:
    patched = result("test_x", passed=("test_y",))
    assert record.worse(table(patched=patched, plain=result(passed=("test_x",))), "gpu")
    assert not record.worse(table(patched=patched, plain=result("test_x")), "gpu")
    assert not record.worse(table(patched=patched), "gpu")


def test_where_plain_does_not_start_the_control_counts() -> None:
    patched, none = result("test_x"), record.not_run("does not start: no AMX")
    whole, broken = result(passed=("test_x",)), result("test_x")
    assert record.worse(table(patched=patched, plain=none, control=whole), "gpu")
    assert not record.worse(table(patched=patched, plain=none, control=broken), "gpu")


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
    assert record.entry([late], 0)["outcome"] == record.NOT_RUN
    assert record.entry([good], 0, {"test_z": "too long"})["cut_off"] == {"test_z": "too long"}


def test_runs_of_two_devices_become_one_record(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    for device in ("cpu", "gpu"):
        one = {"provenance": {device: {"date": "today"}}, "kits": {"a.B": {device: {PATCHED: {}}}}}
        record.write(file, one)
    content = json.loads(file.read_text())
    assert set(content["kits"]["a.B"]) == set(content["provenance"]) == {"cpu", "gpu"}


@pytest.mark.skipif(not RECORD.is_file(), reason="no kit has been run yet")
def test_the_page_is_that_of_the_record() -> None:
    assert PAGE.read_text() == page.text(json.loads(RECORD.read_text()))
