"""Kimi-K2.5's and DeepSeek-V3's classes on a GPU: latent attention, INT4 experts, both drafts.

The tiny targets have one right answer to every prompt, so no second server is needed to know what
greedy decoding without speculation says; one of these tests asks it all the same. What is captured
is held against transformers in float32: by the fingerprint in each server's self-test, and state
for state by a dump. `test/cpu/test_kimi.py` runs the same checks where there is no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit import deepseek, gpus
from kit.deepseek import Setup
from kit.fleet import Fleet
from sglang_spec.client import Client
from sglang_spec.server import ServerError

TRITON = ("--attention-backend", "triton")
FLASHINFER = ("--attention-backend", "flashinfer")
SETUPS = {
    "mla": Setup("kimi", "mla", TRITON),
    "llama": Setup("kimi", "llama", TRITON),
    "experts-in-triton": Setup("kimi", "mla", (*TRITON, "--moe-runner-backend", "triton")),
    "deepseek": Setup("deepseek", "mla", TRITON),
    "flashinfer": Setup("kimi", "mla", FLASHINFER),
    # The fusion that upstream switches on for these classes is no matter of this test.
    "tp2": Setup("kimi", "mla", (*TRITON, "--enforce-disable-flashinfer-allreduce-fusion"), tp=2),
}
PLAIN = Setup("kimi", None, TRITON)
TARGETS = ("kimi", "deepseek")
Marked = Callable[[Setup], Path]


def parameter(name: str) -> object:
    setup = SETUPS[name]
    missing = gpus.lacks_backend("flashinfer") if setup.flags == FLASHINFER else ""
    return pytest.param(
        name, marks=[gpus.needs(setup.tp), pytest.mark.skipif(bool(missing), reason=missing)]
    )


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Marked:
    """The draft of a setup with the fingerprint that transformers made beside it."""
    made: dict[tuple[str, str | None], Path] = {}

    def find(setup: Setup) -> Path:
        wanted = (setup.target, setup.draft)
        if wanted not in made:
            made[wanted] = deepseek.marked_draft(setup, tmp_path_factory.mktemp("marked"))
        return made[wanted]

    return find


@pytest.fixture(scope="module", autouse=True)
def ahead(request: pytest.FixtureRequest, fleet: Fleet, marked: Marked) -> None:
    """The servers that these tests will ask start at once, several beside each other."""
    names = [
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and hasattr(item, "callspec")
        and "name" in item.callspec.params
        and not any(mark.args and mark.args[0] for mark in item.iter_markers("skipif"))
    ]
    chosen = {name: SETUPS[name] for name in dict.fromkeys(names)}
    fleet.expect((name, setup.launch(marked(setup))) for name, setup in chosen.items())


@pytest.fixture(params=[parameter(name) for name in SETUPS], scope="module")
def name(request: pytest.FixtureRequest, fleet: Fleet, marked: Marked) -> Iterator[str]:
    found: str = request.param
    yield found
    fleet.done(SETUPS[found].launch(marked(SETUPS[found])))


@pytest.fixture
def client(name: str, fleet: Fleet, marked: Marked) -> Client:
    return fleet.client(SETUPS[name].launch(marked(SETUPS[name])), f"kimi-{name}")


@pytest.mark.parametrize("batch", [1, 5, 24])  # 24 is above the largest captured graph
def test_tokens_are_those_without_speculation(name: str, client: Client, batch: int) -> None:
    for answer in deepseek.check_tokens(SETUPS[name], client, batch):
        deepseek.check_accepted(answer)


def test_experts_run_on_the_kernels_that_were_asked_for(
    name: str, client: Client, fleet: Fleet, marked: Marked
) -> None:
    """Without a flag INT4 experts run on Marlin, but on SM100 upstream chooses Triton."""
    setup = SETUPS[name]
    in_triton = "--moe-runner-backend" in setup.flags or gpus.capability()[0] == 10
    chosen = "WNA16TritonMoE" if in_triton else "WNA16MarlinMoEMethod"
    log = fleet.server(setup.launch(marked(setup)), f"kimi-{name}").log.read_text()
    assert f"Using CompressedTensors{chosen}" in log


def test_captured_layers_are_those_of_the_contract(name: str, client: Client) -> None:
    deepseek.check_captured(SETUPS[name], client)


def test_a_prefix_that_is_cached(name: str, client: Client) -> None:
    """The latent path with a prefix is another one than the prefill of a whole prompt."""
    client.flush_cache()
    (start,) = deepseek.prompts(1, seed=3)
    start = start * 3
    first = client.generate(start, 16, ignore_eos=True)
    longer = [*start, *first.tokens[:5]]
    again = client.generate(longer, 16, ignore_eos=True)
    assert again.meta["cached_tokens"] > len(start) // 2
    plan = deepseek.PLANS[SETUPS[name].target]
    assert list(again.tokens) == plan.greedy(longer, 16)


def test_a_server_without_speculation_says_the_same(fleet: Fleet) -> None:
    client = fleet.client(PLAIN.launch(), "kimi-plain")
    answers = deepseek.check_tokens(PLAIN, client, 5)
    assert not any(answer.cycles for answer in answers)
    fleet.done(PLAIN.launch())


@pytest.mark.parametrize("target", TARGETS)
def test_states_of_int4_experts_are_those_of_transformers(target: str, tmp_path: Path) -> None:
    deepseek.check_states(Setup(target, None, TRITON), tmp_path)


def test_a_layer_that_only_the_fingerprint_finds(
    fleet: Fleet, marked: Marked, tmp_path: Path
) -> None:
    setup = SETUPS["mla"]
    launch = setup.launch(deepseek.one_layer_off(marked(setup), tmp_path / "off"))
    with pytest.raises(ServerError) as ended:
        fleet.client(launch, "kimi-off")
    fleet.done(launch)
    assert deepseek.OFF_BY_ONE in str(ended.value)
