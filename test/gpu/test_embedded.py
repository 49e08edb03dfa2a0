"""A trained pair on one GPU: greedy answers with and without speculation, ties shown as ties."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from kit import gpus, near_ties
from kit.decode_setups import Setup
from kit.fleet import Fleet
from sglang_spec.client import Client
from sglang_spec.models import held_out

NEW = 64
SETUPS = [
    # Compiles its kernels for this head size at the first start; starts while others are tested.
    Setup("embedded-flashinfer", "flashinfer", plan=None, slow=True),
    Setup("embedded-triton", "triton", plan=None),
    Setup("embedded-fa3", "fa3", plan=None),
]
# Measured on held-out prompts: 2.90; a capture off by one layer costs 4 %, the embedding in place
# of a layer 14 %, two layers swapped 23 %, the reverse order 65 % (`test_capture` finds the small
# ones).
ACCEPT_LENGTH = 2.3


@pytest.fixture(params=[gpus.with_backend(setup) for setup in SETUPS], scope="module")
def setup(request: pytest.FixtureRequest, fleet: Fleet) -> Iterator[Setup]:
    found: Setup = request.param
    yield found
    for launch in found.launches():
        fleet.done(launch)


@pytest.fixture
def base(setup: Setup, fleet: Fleet) -> Client:
    return fleet.client(setup.plain(), f"{setup.name}-plain")


@pytest.fixture
def spec(setup: Setup, fleet: Fleet) -> Client:
    return fleet.client(setup.launch(), setup.name)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    return [json.loads(line)["prompt_ids"] for line in held_out().read_text().splitlines()]


Record = Callable[[str, object], None]


def test_alone(
    base: Client, spec: Client, prompts: list[list[int]], record_property: Record
) -> None:
    asked = prompts[:24]
    found = near_ties.alone(base, spec, asked, NEW)
    record_property("ties", [[d.prompt, d.position, d.base_gap, d.spec_gap] for d in found])
    assert not [difference for difference in found if not difference.tie]


@pytest.mark.parametrize("size", [8, 64, 116])
def test_in_a_batch(
    base: Client, spec: Client, prompts: list[list[int]], size: int, record_property: Record
) -> None:
    found = near_ties.together(base, spec, prompts[:size], NEW)
    record_property("partings", [[p.prompt, p.position, p.gap] for p in found])
    assert not [parting for parting in found if not parting.tie]


def test_accept_length(spec: Client, prompts: list[list[int]], record_property: Record) -> None:
    answers = spec.generate_batch(prompts[:64], NEW, ignore_eos=True)
    cycles = sum(answer.cycles for answer in answers)
    mean = sum(len(answer.tokens) - 1 for answer in answers) / cycles
    record_property("accept_length", round(mean, 3))
    assert mean > ACCEPT_LENGTH


def test_chat_stops_where_the_model_ends(base: Client, spec: Client) -> None:
    replies = [client.chat("What is 2+2? Answer briefly.") for client in (base, spec)]
    texts = [reply["choices"][0]["message"]["content"] for reply in replies]
    assert texts[0] == texts[1]
    assert "4" in texts[1]
    assert replies[1]["choices"][0]["finish_reason"] == "stop"
