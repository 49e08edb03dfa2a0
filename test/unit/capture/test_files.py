"""Reading and writing tensors: safetensors, torch files without running them, training layouts."""

from __future__ import annotations

import gzip
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from kit.streams import HIDDEN, Stream, write_dump
from sglang_spec.capture import tensorfile, torchfile
from sglang_spec.capture.command import capture
from sglang_spec.capture.dump import open_dump
from sglang_spec.capture.standardize import read_data
from sglang_spec.capture.tensorfile import TensorFile, TensorFileError


@settings(deadline=None)  # the first example imports torch
@given(arrays.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32)))
def test_bfloat16_is_rounded_as_torch_does(array: np.ndarray) -> None:
    torch = pytest.importorskip("torch")
    ours = tensorfile.decode(tensorfile.to_bfloat16(array), "BF16")
    theirs = torch.from_numpy(array.copy()).bfloat16().float().numpy()
    np.testing.assert_array_equal(ours, theirs)


def test_safetensors_of_other_writers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    held = {
        "x": torch.randn(3, 4).bfloat16(),
        "y": torch.arange(5),
        "z": torch.randn(2).half(),
        "m": torch.tensor([True, False]),
    }
    save_file(held, tmp_path / "theirs.safetensors")
    opened = TensorFile(tmp_path / "theirs.safetensors")
    for name, tensor in held.items():
        np.testing.assert_array_equal(opened.read(name), tensor.float().numpy())
    ours = {"x": opened.read("x"), "y": opened.read("y")}
    tensorfile.write(tmp_path / "ours.safetensors", ours, bfloat16=True)
    back = load_file(tmp_path / "ours.safetensors")
    assert torch.equal(back["x"], held["x"]) and torch.equal(back["y"], held["y"])


def test_torch_files_are_read_without_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    held = {
        "whole": base,
        "columns": base[:, 1:3],
        "turned": base.t(),
        "short": base.bfloat16(),
        "ids": torch.arange(7),
        "mask": torch.tensor([True, False]),
        "scalar": torch.tensor(3.5),
        "none": torch.empty(0, 4),
        "name": "text",
    }
    torch.save(held, tmp_path / "x.ckpt")
    packed = tmp_path / "x.ckpt.gz"
    packed.write_bytes(gzip.compress((tmp_path / "x.ckpt").read_bytes()))
    read = torchfile.read(tmp_path / "x.ckpt")
    assert torchfile.read(packed).keys() == read.keys()
    for name, value in held.items():
        if name == "name":
            assert read[name] == value
        else:
            np.testing.assert_array_equal(read[name], value.float().numpy())


class Planted:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return (Path.touch, (self.path,))


def test_a_planted_call_is_refused_and_not_run(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.ckpt", "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps({"a": Planted(tmp_path / "ran")}))
    with pytest.raises(TensorFileError, match="holds more than tensors: it asks for pathlib"):
        torchfile.read(tmp_path / "x.ckpt")
    assert not (tmp_path / "ran").exists()
    (tmp_path / "y.ckpt").write_bytes(b"junk")
    with pytest.raises(TensorFileError, match="is no file of saved tensors"):
        torchfile.read(tmp_path / "y.ckpt")


def test_standardize_own_layout(tmp_path: Path, streams: list[Stream]) -> None:
    dump = write_dump(tmp_path / "dump", streams, [3, 31 - 1, 30])
    done = CliRunner().invoke(capture, ["standardize", str(dump), str(tmp_path / "data"), "--json"])
    assert done.exit_code == 0, done.output
    data = list(read_data(tmp_path / "data"))
    assert len(data) == 3
    for one, sample in zip(streams, data, strict=True):
        np.testing.assert_array_equal(sample["input_ids"], one.ids)
        assert sample["loss_mask"].tolist() == [1] * len(one.ids)
        assert sample["hidden_states"].shape == (len(one.ids), 3 * HIDDEN)
        expected = np.concatenate([one.states[3], one.states[30], one.states[30]], axis=1)
        np.testing.assert_allclose(sample["hidden_states"], expected, rtol=0.01)
        np.testing.assert_allclose(sample["last_hidden_states"], one.last, rtol=0.01)
    told = json.loads((tmp_path / "data/data.json").read_text())
    assert told["slots"][0] == {"slot": 0, "takes": "output of layer 2", "loop_index": 3}


def test_standardize_can_reorder(tmp_path: Path, streams: list[Stream]) -> None:
    dump = write_dump(tmp_path / "dump", streams, [3, 15, 27])
    out = tmp_path / "data"
    done = CliRunner().invoke(capture, ["standardize", str(dump), str(out), "--order", "2,0"])
    assert done.exit_code == 0, done.output
    (first, *_) = read_data(out)
    expected = np.concatenate([streams[0].states[27], streams[0].states[3]], axis=1)
    np.testing.assert_allclose(first["hidden_states"], expected, rtol=0.01)
    bad = CliRunner().invoke(capture, ["standardize", str(dump), str(out), "--order", "3"])
    assert bad.exit_code == 2 and "slots 0 to 2" in bad.output


def test_standardize_says_what_it_leaves_out(tmp_path: Path, streams: list[Stream]) -> None:
    dump = write_dump(tmp_path / "dump", streams, [3, 15, 27], last=False)
    done = CliRunner().invoke(capture, ["standardize", str(dump), str(tmp_path / "data")])
    assert done.exit_code == 1
    assert "left out 0: it has no last hidden state" in done.output


def test_specforge_layout_there_and_back(tmp_path: Path, streams: list[Stream]) -> None:
    torch = pytest.importorskip("torch")
    dump = write_dump(tmp_path / "dump", streams, [3, 15, 27])
    out = tmp_path / "data"
    done = CliRunner().invoke(
        capture, ["standardize", str(dump), str(out), "--layout", "specforge"]
    )
    assert done.exit_code == 0, done.output
    saved = torch.load(out / "rows_0-2000/data_1.ckpt", weights_only=True)
    tokens = len(streams[1].ids)
    assert saved["input_ids"].tolist() == streams[1].ids.tolist()
    assert saved["aux_hidden_state"].shape == (1, tokens, 3 * HIDDEN)
    assert saved["hidden_state"].shape == (1, tokens, HIDDEN)
    assert saved["loss_mask"].shape == (tokens,)
    back = list(open_dump(out, ("a", "b", "c")).samples())
    np.testing.assert_allclose(back[1].states[:, 0], streams[1].states[3], rtol=0.01)
    compared = CliRunner().invoke(
        capture, ["compare", str(out), str(dump), "--labels", "low,middle,high"]
    )
    assert compared.exit_code == 0, compared.output
    assert "slot 0 of A, labelled low, is the output of layer 2, and so is slot 0 of B" in (
        compared.output
    )


def test_specforge_reads_what_is_written(tmp_path: Path, streams: list[Stream]) -> None:
    """Runs where the package `specforge` is installed; the suite does not ask for it."""
    reader = pytest.importorskip("specforge.runtime.data_plane.offline_reader")
    preprocessing = pytest.importorskip("specforge.data.preprocessing")
    torch = pytest.importorskip("torch")
    dump = write_dump(tmp_path / "dump", streams, [3, 15, 27])
    arguments = [str(dump), str(tmp_path / "data"), "--layout", "specforge"]
    assert CliRunner().invoke(capture, ["standardize", *arguments]).exit_code == 0
    listed = reader.OfflineManifestReader(str(tmp_path / "data"), validate_files=True)
    refs = list(listed.read())
    assert len(refs) == len(streams)
    raw = torch.load(tmp_path / "data/rows_0-2000/data_0.ckpt", weights_only=True)
    sample = preprocessing.process_offline_eagle3_sample(raw, 2048)
    assert sample["hidden_state"].shape == (1, len(streams[0].ids), 3 * HIDDEN)
    slot = sample["hidden_state"][0, :, HIDDEN : 2 * HIDDEN].float().numpy()
    np.testing.assert_allclose(slot, streams[0].states[15], rtol=0.01)
    np.testing.assert_allclose(sample["target"][0].float().numpy(), streams[0].last, rtol=0.01)
    assert sample["loss_mask"].sum() == len(streams[0].ids) - 1
