"""Kimi-K2.5's and DeepSeek-V3's classes, with latent attention and INT4 experts, on the CPU.

The CPU has no kernel for INT4: `kit.deepseek_on_cpu` multiplies what upstream's loader made of the
packed tensors. The kernels themselves run in `test/gpu/test_kimi.py`, with the same checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from kit import deepseek, tampered
from kit.deepseek import Setup
from kit.servers import LOGS, ServerPool
from sglang_spec.bench import visit, weightless
from sglang_spec.bench.mode import Settings
from sglang_spec.bench.record import Record
from sglang_spec.bench.scene import Steady
from sglang_spec.bench.shape import shapes
from sglang_spec.client import Client
from sglang_spec.server import Server, ServerError, Spawn

SETUPS = (
    Setup("kimi", "mla"),
    # The rest differs in one thing each and starts another server; too much for every run.
    pytest.param(Setup("kimi", "llama"), marks=pytest.mark.full),
    pytest.param(Setup("kimi-bfloat16", "mla"), marks=pytest.mark.full),
    pytest.param(Setup("deepseek", "mla"), marks=pytest.mark.full),
)


@pytest.fixture(params=SETUPS, ids=str, scope="module")
def setup(request: pytest.FixtureRequest) -> Setup:
    found: Setup = request.param
    return found


@pytest.fixture(scope="module")
def marked(setup: Setup, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return deepseek.marked_draft(setup, tmp_path_factory.mktemp("marked"))


def spawner(servers: ServerPool, folder: Path) -> Spawn:
    assert servers.zygote is not None
    return tampered.spawner(servers.zygote, folder / "program.py", "import kit.deepseek_on_cpu")


@pytest.fixture(scope="module")
def client(servers: ServerPool, setup: Setup, marked: Path) -> Iterator[Client]:
    spawn = spawner(servers, marked.parent)
    with Server(setup.launch(marked), LOGS / f"test-{setup}.log", spawn=spawn) as server:
        server.wait_ready()
        client = Client(server.url)
        yield client
        client.close()


@pytest.mark.parametrize("batch", [1, 5])
def test_tokens_are_those_without_speculation(setup: Setup, client: Client, batch: int) -> None:
    for answer in deepseek.check_tokens(setup, client, batch):
        deepseek.check_accepted(answer)


def test_captured_layers_are_those_of_the_contract(setup: Setup, client: Client) -> None:
    deepseek.check_captured(setup, client)


@pytest.mark.full  # each starts a server of its own
@pytest.mark.parametrize("target", ["kimi", "kimi-bfloat16", "deepseek"])
def test_states_are_those_of_transformers(servers: ServerPool, target: str, tmp_path: Path) -> None:
    deepseek.check_states(Setup(target, None), tmp_path, spawner(servers, tmp_path))


@pytest.mark.full
def test_a_layer_that_only_the_fingerprint_finds(servers: ServerPool, tmp_path: Path) -> None:
    setup = Setup("kimi", "llama")
    draft = deepseek.one_layer_off(deepseek.marked_draft(setup, tmp_path), tmp_path / "off")
    server = Server(setup.launch(draft), tmp_path / "log", spawn=spawner(servers, tmp_path))
    with pytest.raises(ServerError) as ended, server:
        server.wait_ready()
    assert deepseek.OFF_BY_ONE in str(ended.value)


@pytest.mark.full
def test_a_server_without_speculation_says_the_same(servers: ServerPool, tmp_path: Path) -> None:
    setup = Setup("kimi", None)
    with Server(setup.launch(), tmp_path / "log", spawn=spawner(servers, tmp_path)) as server:
        server.wait_ready()
        client = Client(server.url)
        answers = deepseek.check_tokens(setup, client, 3)
        assert not any(answer.cycles for answer in answers)
        client.close()


@pytest.mark.full
def test_the_small_relative_of_the_large_shape_is_measured(
    servers: ServerPool, tmp_path: Path
) -> None:
    """`benchmark/threshold.py --shape kimi-cut` has the same classes, flags and dummy weights."""
    weights = replace(weightless.kimi_small(), folder=tmp_path)
    shape = replace(shapes(2.0)["kimi-small"], pair=weights.pair)
    settings = Settings(shape, None, most_requests=8, kv_tokens=8192)
    plan = visit.Plan(("static",), (Steady(shape, 64, 2, 24),), 1, 1, 0.0, tmp_path)
    record = Record(tmp_path / "results.json", {**asdict(settings), "shape": shape.name})
    visit.run(plan, settings, record, print, spawner(servers, tmp_path))
    (measured,) = record.visit["samples"]["steady 64 x 2"]["static"]
    # A forked server has imported before the forced length was set, so nothing is forced here.
    assert measured["tok_s"] > 0 and measured["accept_length"] >= 1
