"""`capture compare`: every kind of wrong capture is found and named, and right ones are not."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from kit.streams import LAYERS, Stream, write_dump
from sglang_spec.capture import tensorfile
from sglang_spec.capture.command import capture
from sglang_spec.capture.compare import Comparison, compare
from sglang_spec.capture.distance import Distances
from sglang_spec.capture.dump import DumpError, open_dump
from sglang_spec.capture.remedy import ids_for, remedy

RIGHT = [3, 15, 27]
EVERY = list(range(LAYERS + 1))


def _compare(
    tmp_path: Path, streams: list[Stream], loops_a: list[int], loops_b: list[int]
) -> tuple[Comparison, str | None]:
    a = open_dump(write_dump(tmp_path / "a", streams, loops_a, noise=0.002))
    b = open_dump(write_dump(tmp_path / "b", streams, loops_b))
    every = open_dump(write_dump(tmp_path / "every", streams, EVERY))
    found = compare(a, b, every)
    return found, remedy(found, b)


def test_equal_captures(tmp_path: Path, streams: list[Stream]) -> None:
    found, advice = _compare(tmp_path, streams, RIGHT, RIGHT)
    assert found.same and advice is None
    assert found.tokens == 150 and found.samples == 3
    assert all(match.certain for match in found.matches_a)
    assert (
        "slot 1 of A, labelled output of layer 14, is the output of layer 14, and so is slot 1"
        in (found.sentences()[1])
    )


# What B captured instead, which slots must be named, and the words for them.
WRONG = {
    "off by one": ([2, 14, 26], {0: "layer 1", 1: "layer 13", 2: "layer 25"}),
    "embedding first": ([0, 15, 27], {0: "the embedding"}),
    "two swapped": ([15, 3, 27], {0: "layer 14", 1: "layer 2"}),
    "reversed": ([27, 15, 3], {0: "layer 26", 2: "layer 2"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_capture_is_named(name: str, tmp_path: Path, streams: list[Stream]) -> None:
    loops, wrong = WRONG[name]
    found, advice = _compare(tmp_path, streams, RIGHT, loops)
    assert not found.same
    for slot, sentence in enumerate(found.sentences()):
        assert f"is the output of layer {RIGHT[slot] - 1}" in sentence
        if slot in wrong:
            assert (
                f"B captures {'' if 'embed' in wrong[slot] else 'the output of '}{wrong[slot]}"
                in (sentence)
            )
        else:
            assert "and so is slot" in sentence
    assert advice is not None and "eagle_aux_hidden_state_layer_ids [2, 14, 26]" in advice


def test_the_incident(tmp_path: Path, streams: list[Stream]) -> None:
    """A training dump of the right layers with misleading labels; inference with the embedding."""
    a = write_dump(tmp_path / "a", streams, RIGHT, noise=0.002)
    b = write_dump(tmp_path / "b", streams, [0, 3, 15])
    every = write_dump(tmp_path / "every", streams, EVERY)
    png = tmp_path / "matrix.png"
    pytest.importorskip("matplotlib")
    arguments = ["--all-layers", every, "--labels", "embed,layer3,layer15", "--png", png]
    done = CliRunner().invoke(capture, ["compare", *map(str, [a, b, *arguments])])
    assert done.exit_code == 1, done.output
    said = done.output.replace("\n", " ")
    assert (
        "slot 0 of A, labelled embed, is the output of layer 2; B captures the embedding there"
        in said
    )
    assert (
        "slot 1 of A, labelled layer3, is the output of layer 14; B captures the output of layer 2"
        in said
    )
    assert "write eagle_aux_hidden_state_layer_ids [2, 14, 26] into the draft's config" in said
    assert png.read_bytes().startswith(b"\x89PNG")


def test_a_shuffled_training_dump_needs_fc_permuted(tmp_path: Path, streams: list[Stream]) -> None:
    _, advice = _compare(tmp_path, streams, [27, 3, 15], RIGHT)
    assert advice is not None
    assert "ids [2, 14, 26]" in advice and "permute the column blocks of fc to [1, 2, 0]" in advice


def test_without_all_layers_slots_are_held_against_each_other(
    tmp_path: Path, streams: list[Stream]
) -> None:
    a = open_dump(write_dump(tmp_path / "a", streams, RIGHT))
    b = open_dump(write_dump(tmp_path / "b", streams, [4, 3, 27]))
    found = compare(a, b)
    assert (
        "slot 0 of A, labelled output of layer 2, is the output of layer 2; B captures"
        in (found.sentences()[0])
    )
    assert "is none of the layers it was held against" in found.sentences()[1]
    assert remedy(found, b) is None


def test_samples_are_found_by_their_tokens(tmp_path: Path, streams: list[Stream]) -> None:
    a = open_dump(write_dump(tmp_path / "a", streams, RIGHT))
    b = open_dump(write_dump(tmp_path / "b", streams[::-1], RIGHT))
    assert compare(a, b).same and compare(a, b).samples == 3
    other = open_dump(write_dump(tmp_path / "c", [_renumbered(streams[0])], RIGHT))
    with pytest.raises(DumpError, match="no sample in common"):
        compare(a, other)


def _renumbered(one: Stream) -> Stream:
    return Stream(one.ids + 1, one.states, one.last)


def test_tokens_are_listed(tmp_path: Path, streams: list[Stream]) -> None:
    folder = write_dump(tmp_path / "a", streams, RIGHT)
    done = CliRunner().invoke(
        capture, ["compare", str(folder), str(folder), "--tokens", "2", "--json"]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    state = streams[0].states[3, 1]
    row = told["tokens_shown"][1]
    assert row["norms_a"][0] == pytest.approx(float(np.linalg.norm(state)), rel=0.01)
    assert row["first_a"][0] == pytest.approx(state[:5].tolist(), rel=0.01, abs=0.01)
    assert told["matrix"][0][0]["error"] == 0.0 and told["same"] is True


@pytest.mark.parametrize(
    ("architecture", "loops", "ids"),
    [
        ("LlamaForCausalLM", [3, 31, 59], [2, 30, 58]),
        ("KimiK25ForConditionalGeneration", [3, 31, 59], [3, 31, 59]),
        ("KimiK25ForConditionalGeneration", [2, 30, 58], [1, 29, 57]),
        ("GptOssForCausalLM", [24, 30, 61], [23, 29, 60]),
        ("NoSuchModel", [1, 2, 3], None),
    ],
)
def test_ids_for_a_family(architecture: str, loops: list[int], ids: list[int] | None) -> None:
    assert ids_for(architecture, loops, 61) == ids


def test_ten_thousand_tokens_in_time(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        for number in range(10):
            states = random.normal(size=(1000, 3 * 576)).astype(np.float32)
            ids = np.arange(1000) + 1000 * number
            tensorfile.write(
                tmp_path / name / f"{number}.safetensors",
                {"input_ids": ids, "states": states},
                True,
            )
    began = time.process_time()  # that of the processor, whoever else has it
    found = compare(open_dump(tmp_path / "a"), open_dump(tmp_path / "b"))
    assert found.tokens == 10_000
    assert time.process_time() - began < 10


def test_one_huge_token_does_not_decide() -> None:
    """The first token's state is far off in both, all others agree."""
    random = np.random.default_rng(0)
    a = random.normal(size=(40, 1, 32)).astype(np.float32)
    b = a.copy()
    a[0] *= 1000
    distances = Distances(1, 1)
    distances.add(a, b)
    (cell,) = distances.matrix()[0]
    assert cell.error == 0 and cell.worst_error > 900


def test_errors_are_usage(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    done = CliRunner().invoke(capture, ["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    assert done.exit_code == 2 and "holds neither manifest.json nor" in done.output
