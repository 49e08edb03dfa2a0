"""The package knows what it is, and says so when its files are no longer that."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from sglang.srt.spec_hardening import provenance


def stamped(tree: Path) -> Path:
    file = tree / "srt/a.py"
    file.parent.mkdir(parents=True)
    file.write_text("right\n")
    stamp = tree / "_spec_pin.json"
    stamp.write_text(
        json.dumps(
            {
                "version": "0.5.23",
                "spec": 7,
                "wheel_sha256": "0" * 64,
                "patch_set": "ab" * 32,
                "patches": [{"slug": "one", "sha256": "c" * 64}],
                "files": {"srt/a.py": hashlib.sha256(b"right\n").hexdigest()},
            }
        )
    )
    return stamp


def test_an_untouched_tree(tmp_path: Path) -> None:
    found = provenance.read(stamped(tmp_path), tmp_path)
    assert found.changed == ()
    assert found.patches == ("one",)
    assert provenance.log_line(found) == "SGLang 0.5.23+spec.7, 1 patches, patch set abababababab"


def test_an_edited_and_a_deleted_file_are_named(tmp_path: Path) -> None:
    stamp = stamped(tmp_path)
    (tmp_path / "srt/a.py").write_text("wrong\n")
    found = provenance.read(stamp, tmp_path)
    assert found.changed == ("srt/a.py",)
    assert "differ from the stamp: srt/a.py" in provenance.log_line(found)
    (tmp_path / "srt/a.py").unlink()
    assert provenance.read(stamp, tmp_path).changed == ("srt/a.py",)


def test_our_own_modules_are_no_less_looked_at(tmp_path: Path) -> None:
    stamp = stamped(tmp_path)
    own = tmp_path / provenance.OWN
    own.mkdir(parents=True)
    (own / "rule.py").write_text("right\n")
    name = f"{provenance.OWN}/rule.py"
    content = json.loads(stamp.read_text())
    stamp.write_text(json.dumps(content | {"own": {name: content["files"]["srt/a.py"]}}))
    assert provenance.read(stamp, tmp_path).differs == ()
    (own / "rule.py").write_text("wrong\n")
    (own / "stray.py").touch()
    found = provenance.read(stamp, tmp_path)
    stray = f"{provenance.OWN}/stray.py"
    assert found.differs == found.own_changed == (name, stray)
    assert provenance.log_line(found).endswith(f"differ from the stamp: {name}, {stray}")


def test_a_line_of_the_log_names_a_few(tmp_path: Path) -> None:
    found = provenance.Provenance("1", 1, "", "", changed=tuple(f"{n}.py" for n in range(11)))
    assert provenance.log_line(found).endswith(
        ": 0.py, 1.py, 2.py, 3.py, 4.py, 5.py, 6.py, 7.py and 3 more"
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\xff"])
def test_a_damaged_stamp_is_none(tmp_path: Path, text: str) -> None:
    """It must not keep a server from starting, nor `import sglang` from working."""
    stamp = stamped(tmp_path)
    stamp.write_bytes(text.encode("latin-1"))
    assert provenance.read(stamp, tmp_path).missing
    assert provenance.local_version("0.5.23", stamp) == "0.5.23"


def test_a_tree_without_a_stamp_says_so(tmp_path: Path) -> None:
    found = provenance.read(tmp_path / "_spec_pin.json", tmp_path)
    assert found.missing
    assert "without a stamp" in provenance.log_line(found)
    assert provenance.local_version("0.5.23", tmp_path / "_spec_pin.json") == "0.5.23"


def test_the_real_package_carries_its_spec_number() -> None:
    code = "import sglang.version as v; print(v.__version__)"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert shown == f"0.5.23+spec.{provenance.read().spec}"
    assert not provenance.read().changed


def test_the_command_tells_it_in_one_line() -> None:
    command = [sys.executable, "-m", "sglang_spec", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown == provenance.log_line(provenance.read()) + "\n"
    assert shown.startswith("SGLang 0.5.23+spec.")
