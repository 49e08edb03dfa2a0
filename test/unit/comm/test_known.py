"""A communication setting that upstream adds and the plan does not know fails here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

SRT = Path(__file__).resolve().parents[3] / "python/sglang/srt"
READ = re.compile(
    r"(?:environ(?:\.setdefault|\.get|\.pop)?[\[(]|getenv\(|get_(?:bool|int)_env_var\()\s*"
    r'"([A-Z_0-9]+)"'
)
known: Any = import_module("sglang_spec.hardening.comm.known")


def _concerns_communication(name: str) -> bool:
    return any(word in name.lower() for word in known.WORDS)


def flags(fields: Path) -> set[str]:
    """Names of the launch arguments declared in the files of a folder."""
    return {
        statement.target.id
        for path in fields.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }


def variables(srt: Path) -> set[str]:
    """Names of the environment variables that the tree declares, reads or writes."""
    declared = re.findall(
        r"^    ([A-Z_0-9]+) = Env", (srt / "environ.py").read_text(encoding="utf-8"), re.M
    )
    return {*declared, *(name for path in upstream(srt) for name in READ.findall(path))}


def upstream(srt: Path) -> Iterator[str]:
    for path in srt.rglob("*.py"):
        if "spec_hardening" not in path.parts:
            yield path.read_text(encoding="utf-8")


def test_every_flag_is_known() -> None:
    assert set(filter(_concerns_communication, flags(SRT / "arg_groups/fields"))) == set(
        known.FLAGS
    )


def test_every_variable_is_known() -> None:
    assert set(filter(_concerns_communication, variables(SRT))) == set(known.VARIABLES)


def test_a_new_setting_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "exec_.py").write_text("class A:\n    enable_nccl_next: bool = False\n")
    (tmp_path / "environ.py").write_text("class E:\n    SGLANG_NVLS_NEXT = EnvBool(False)\n")
    (tmp_path / "use.py").write_text('os.environ["NCCL_NEXT"] = "1"\n')
    assert flags(tmp_path) == {"enable_nccl_next"}
    found = set(filter(_concerns_communication, variables(tmp_path)))
    assert found == {"SGLANG_NVLS_NEXT", "NCCL_NEXT"}


def test_targets_that_are_fused_by_default() -> None:
    text = (SRT / "arg_groups/overrides.py").read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == (
            "_FLASHINFER_ALLREDUCE_FUSION_ARCHS"
        ):
            names = set(re.findall(r"'(\w+)'", ast.unparse(node.value)))
            profiles: Any = import_module("sglang_spec.hardening.comm.profiles")
            assert names == profiles.read().fused_by_default
            return
    raise AssertionError("upstream has no such list any more")


def test_every_value_says_where_it_comes_from() -> None:
    profiles: Any = import_module("sglang_spec.hardening.comm.profiles").read()
    values = [value for rule in profiles.rules for value in rule.values]
    for one in [*values, profiles.pcie_ipc]:
        assert one.source.startswith("https://") and re.fullmatch(r"20\d\d-\d\d", one.date), one
