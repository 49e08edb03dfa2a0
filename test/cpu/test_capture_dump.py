"""`capture dump` through the real engine, held against an independent forward of the same model."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from kit.checkpoints import Config, copy
from kit.faults import IDS
from kit.servers import ServerPool, spawner
from sglang_spec.capture import tensorfile
from sglang_spec.capture.compare import compare
from sglang_spec.capture.dump import Dump, open_dump
from sglang_spec.capture.extract import Plan, extract, plan
from sglang_spec.capture.prompts import Prompt, read_prompts
from sglang_spec.capture.remedy import remedy
from sglang_spec.capture.send import ExtractError
from sglang_spec.models import Pair
from sglang_spec.models.embedded import held_out
from sglang_spec.models.tiny.plan import BOS, SPECIALS, VOCABULARY
from sglang_spec.server import Launch, Speculation

LAYERS = 30


def _prompts(pair: Pair, count: int, longest: int = 160) -> list[Prompt]:
    return list(read_prompts(held_out(), pair.target, longest))[:count]


@pytest.fixture(scope="module")
def every_layer(
    servers: ServerPool, embedded: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Dump:
    """Every layer of three samples; chunks so small that prompts are prefilled piece by piece."""
    folder = tmp_path_factory.mktemp("every")
    chosen = plan(embedded.target, None, None)
    small = ("--chunked-prefill-size", "64")
    spawn = spawner(servers.zygote)
    made = extract(chosen, _prompts(embedded, 3), folder, small, spawn=spawn)
    assert made.samples == 3 and made.skipped == 0
    return open_dump(folder)


@pytest.fixture(scope="module")
def by_transformers(
    every_layer: Dump, embedded: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Dump:
    """The same samples by transformers' own implementation, as a folder of another trainer."""
    import torch
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("transformers")
    model = AutoModelForCausalLM.from_pretrained(embedded.target, dtype=torch.float32)
    for number, sample in enumerate(every_layer.samples()):
        with torch.no_grad():
            ids = torch.from_numpy(sample.input_ids)[None]
            states = model(ids, output_hidden_states=True).hidden_states
        stacked = torch.cat([state[0] for state in states[:LAYERS]], dim=-1).numpy()
        held = {
            "input_ids": sample.input_ids,
            "states": stacked,
            "hidden_state": states[-1].numpy(),
        }
        tensorfile.write(folder / f"{number}.safetensors", held)
    labels = tuple(f"hidden_states[{n}]" for n in range(LAYERS))
    return open_dump(folder, labels)


def test_manifest_names_every_slot(every_layer: Dump) -> None:
    assert every_layer.labels[:3] == ("the embedding", "output of layer 0", "output of layer 1")
    assert every_layer.loops == tuple(range(LAYERS))
    assert every_layer.manifest["architecture"] == "LlamaForCausalLM"


def test_states_are_those_of_transformers(every_layer: Dump, by_transformers: Dump) -> None:
    found = compare(every_layer, by_transformers)
    assert found.tokens == sum(len(sample.states) for sample in every_layer.samples())
    for slot, match in enumerate(found.matches_a):
        assert match.label == f"hidden_states[{slot}]"
        assert match.certain, f"slot {slot}: {match}"
    for ours, theirs in zip(every_layer.samples(), by_transformers.samples(), strict=True):
        assert ours.last is not None and theirs.last is not None
        error = np.linalg.norm(ours.last - theirs.last, axis=1) / np.linalg.norm(
            theirs.last, axis=1
        )
        assert np.median(error) < 0.05


def test_loss_masks_come_along(every_layer: Dump, embedded: Pair) -> None:
    for sample, line in zip(
        every_layer.samples(), held_out().read_text().splitlines(), strict=False
    ):
        prompt = len(json.loads(line)["prompt_ids"])
        assert sample.loss_mask is not None
        assert sample.loss_mask.tolist() == [0] * prompt + [1] * (len(sample.states) - prompt)


def test_dump_for_a_draft_is_resumed(
    servers: ServerPool, embedded: Pair, every_layer: Dump, tmp_path: Path
) -> None:
    """One sample of three is lost in between; the second run makes that one and no other."""
    chosen = plan(embedded.target, embedded.draft, None)
    prompts = _prompts(embedded, 3)
    spawn = spawner(servers.zygote)
    first = extract(chosen, prompts[:2], tmp_path, spawn=spawn)
    assert (first.samples, first.skipped) == (2, 0)
    (tmp_path / "samples/00000/00000000.safetensors").unlink()
    kept = (tmp_path / "samples/00000/00000001.safetensors").stat().st_mtime_ns
    second = extract(chosen, prompts, tmp_path, spawn=spawn)
    assert (second.samples, second.skipped) == (2, 1)
    assert (tmp_path / "samples/00000/00000001.safetensors").stat().st_mtime_ns == kept
    dump = open_dump(tmp_path)
    found = compare(dump, dump, every_layer)
    assert [match.label for match in found.matches_a] == list(dump.labels)
    assert [match.loop for match in found.matches_a] == [4, 16, 28]
    with pytest.raises(ExtractError, match="choose another folder"):
        extract(plan(embedded.target, None, [1, 2]), prompts, tmp_path, spawn=spawn)


def test_two_ranks_write_what_one_writes(servers: ServerPool, tiny: Pair, tmp_path: Path) -> None:
    """Every rank has the whole states; one of them writes, and writes each sample once."""
    dice = random.Random(4)
    tokens = [[BOS, *(dice.randrange(SPECIALS, VOCABULARY) for _ in range(n))] for n in (9, 80, 33)]
    prompts = [Prompt(number, tuple(ids)) for number, ids in enumerate(tokens)]
    spawn = spawner(servers.zygote)
    chosen = plan(tiny.target, tiny.draft, None)
    dumps = {}
    for ranks in (1, 2):
        folder = tmp_path / str(ranks)
        made = extract(chosen, prompts, folder, ("--tp-size", str(ranks)), spawn=spawn)
        assert (made.samples, made.tokens) == (3, sum(map(len, tokens)))
        assert len(list(folder.rglob("*.safetensors"))) == 3
        dumps[ranks] = open_dump(folder)
    found = compare(dumps[2], dumps[1])
    assert found.same and found.tokens == sum(map(len, tokens))
    for one, two, ids in zip(dumps[1].samples(), dumps[2].samples(), tokens, strict=True):
        assert two.input_ids is not None and two.input_ids.tolist() == ids
        assert np.array_equal(one.states, two.states), "the tiny pair's sums are exact"


# Two servers with 8 answers each. The figures of more answers are in benchmark/results.
@pytest.mark.full
def test_the_incident_replayed(
    servers: ServerPool, embedded: Pair, every_layer: Dump, tmp_path: Path
) -> None:
    """Training on the right layers, inference with the embedding first: named, cured, measured."""
    spawn = spawner(servers.zygote)
    prompts = _prompts(embedded, 3)
    training, inference = tmp_path / "training", tmp_path / "inference"
    extract(plan(embedded.target, embedded.draft, None), prompts, training, spawn=spawn)
    wrong: Plan = plan(embedded.target, None, [0, 4, 16])
    extract(wrong, prompts, inference, spawn=spawn)
    a, b = open_dump(training, ("embed", "layer3", "layer15")), open_dump(inference)
    found = compare(a, b, every_layer)
    assert found.sentences()[:2] == [
        "slot 0 of A, labelled embed, is the output of layer 3; B captures the embedding there",
        "slot 1 of A, labelled layer3, is the output of layer 15; "
        "B captures the output of layer 3 there",
    ]
    assert "eagle_aux_hidden_state_layer_ids [3, 15, 27]" in str(remedy(found, b))
    before = _accept_length(servers, embedded, _with_ids(embedded.draft, tmp_path, [-1, 3, 15]))
    after = _accept_length(servers, embedded, _with_ids(embedded.draft, tmp_path, [3, 15, 27]))
    print(f"accept length {before:.2f} before, {after:.2f} after")
    assert after > 1.3 * before


def _with_ids(draft: Path, folder: Path, ids: list[int]) -> Path:
    def edit(config: Config) -> None:
        config["eagle_config"][IDS] = ids

    edited = copy(draft, folder / f"draft{ids[0]}", edit)
    # With its fingerprint the wrong layers would be refused, as the draft of the incident was not.
    (edited / "capture_fingerprint.json").unlink()
    return edited


def _accept_length(servers: ServerPool, pair: Pair, draft: Path) -> float:
    wanted = Launch(pair.target, Speculation(draft), arguments=("--speculative-contract", "report"))
    client = servers.client(wanted)
    tokens = cycles = 0
    for line in held_out().read_text().splitlines()[:8]:
        answer = client.generate(json.loads(line)["prompt_ids"], 48)
        tokens, cycles = tokens + len(answer.tokens), cycles + answer.cycles
    return tokens / cycles
