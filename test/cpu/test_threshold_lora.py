"""Adapters across the batch threshold: answers of no speculation, and the draft's KV.

Upstream's LoRA asks torch for pinned memory, which a host without a GPU does not have; the servers
here go without it (`kit.threshold_probe`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit import adapter_asks
from kit.adapter_asks import Answers, ask, check_answers, check_apart, check_draft_kv
from kit.crossing import FLAGS, PROBE, STEPS, Crossing, crossing
from kit.faulty_server import FaultyServer
from kit.servers import ServerPool
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation

pytestmark = pytest.mark.full  # two servers with adapters, a minute and a half

# An adapter's products have other shapes in a plain decode; what they round passes through gates
# that multiply it. A wrong row is of other order.
TOLERANCE = 1e-3
ENVIRONMENT = {"SPEC_TEST_LORA": "1", "SPEC_TEST_OVERLAP": "1"}


@pytest.fixture(scope="module")
def adapted(tiny: Pair, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("adapters")
    return adapter_asks.flags(folder, tiny.target, "torch_native")


@pytest.fixture(scope="module")
def expected(
    servers: ServerPool,
    tiny: Pair,
    adapted: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Answers:
    launch = Launch(tiny.target, None, "float32", adapted, ENVIRONMENT)
    plan = tmp_path_factory.mktemp("plain") / "plan"
    with FaultyServer(servers, launch, plan, "threshold-lora-plain", PROBE) as server:
        answers = ask(server.client)
        check_apart(answers, server.client)
    return answers


@pytest.fixture(scope="module")
def server(
    servers: ServerPool,
    tiny: Pair,
    adapted: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Crossing]:
    flags = (*FLAGS, *adapted, "--skip-speculative-self-test")
    speculation = Speculation(tiny.draft, STEPS, 1, STEPS + 1)
    launch = Launch(tiny.target, speculation, "float32", flags, ENVIRONMENT)
    with crossing(servers, launch, tmp_path_factory.mktemp("lora")) as found:
        yield found


@pytest.mark.parametrize("plan", ["on", "off 100000", "coin 1", "coin 2", ""])
def test_answers_with_adapters_are_those_of_no_speculation(
    server: Crossing, expected: Answers, plan: str
) -> None:
    before = server.info()
    check_answers(server, plan, expected)
    after = server.info()
    if plan.startswith("coin"):
        assert after["switches"] - before["switches"] > 3


def test_a_plain_step_without_its_adapters_is_seen(server: Crossing, expected: Answers) -> None:
    with pytest.raises(AssertionError, match="other answers"):
        check_answers(server, "coin 1 unadapted", expected)
    server.plan("")


@pytest.mark.parametrize("plan", ["off 17", "coin 5"])
def test_the_drafts_kv_of_adapted_requests_is_that_of_a_run_never_off(
    server: Crossing, plan: str
) -> None:
    check_draft_kv(server, plan, TOLERANCE)


def test_a_draft_that_catches_up_wrongly_beside_adapters_is_seen(server: Crossing) -> None:
    with pytest.raises(AssertionError, match=r"draft [kv] of request"):
        check_draft_kv(server, "off 17 skip-one", TOLERANCE)
    server.client.flush_cache()
