"""The batch threshold: tokens, the draft's KV, and acceptance across its crossings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kit import drawn_asks, lossless
from kit.asking import Ask
from kit.counted_crossing import check_drawn, check_penalties, check_penalties_until
from kit.crossing import (
    CAPACITY,
    FLAGS,
    STEPS,
    Crossing,
    check_arrivals_until,
    check_draft_kv,
    check_prefix,
    check_random_arrivals,
    check_return,
    crossing,
    prompt,
)
from kit.fidelity_servers import PLAIN
from kit.servers import ServerPool
from sglang_spec.client import Client
from sglang_spec.models import Pair, held_out
from sglang_spec.models.tiny import TINY_HALF, Plan
from sglang_spec.server import Launch, ServerError, Speculation

SERVED = (*PLAIN, "--skip-speculative-self-test")
OVERLAPPED = tuple(flag for flag in SERVED if flag != "--disable-overlap-schedule")


def more(value: Any) -> Any:
    """A case like the others, which the short suite leaves out for its time."""
    return pytest.param(value, marks=pytest.mark.full)


def both_ways(counted: dict[str, int]) -> bool:
    return counted["batches_off"] > 0 and counted["batches_on"] > 0


def serve(
    servers: ServerPool,
    pair: Pair,
    folder: Path,
    *flags: str,
    topk: int = 1,
    dtype: str = "bfloat16",
    **environment: str,
) -> AbstractContextManager[Crossing]:
    speculation = Speculation(pair.draft, STEPS, topk, STEPS + 1 if topk == 1 else 8)
    arguments = (*FLAGS, "--chunked-prefill-size", "96", *flags)
    return crossing(
        servers, Launch(pair.target, speculation, dtype, arguments, environment), folder
    )


@pytest.fixture(scope="module")
def one(
    servers: ServerPool, tiny: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crossing]:
    """One rank; its self-test crossed the threshold before it was ready."""
    with serve(servers, tiny, tmp_path_factory.mktemp("one")) as server:
        yield server


def test_off_is_a_plain_decode_and_the_draft_catches_up(one: Crossing) -> None:
    self_test = one.client.get("/server_info").json()["speculative_self_test"]
    assert "threshold" in self_test["modes"] and self_test["accept_length"] == STEPS + 1
    counted, answers = check_return(one)
    # Off from the second request's start to its end; caught up after 16 steps, by the KV alone, and
    # at the return.
    assert counted == {"batches_off": 29, "switches": 2, "catch_ups": 2, "catch_ups_kv_only": 1}
    assert one.info()["reason"] == "1 rows: fewer than 3"
    assert answers[3].meta["spec_accept_length"] == pytest.approx(STEPS + 1, abs=0.3)


@pytest.mark.parametrize("seed", [1, more(2)])
def test_random_arrivals_across_the_threshold(one: Crossing, seed: int) -> None:
    one.plan("")
    check_arrivals_until(one, seed, both_ways)


@pytest.mark.parametrize("seed", [3, more(4), more(5)])
def test_random_decisions(one: Crossing, seed: int) -> None:
    """Crossings that no flags would give: at any batch, any row count, again and again."""
    one.plan(f"coin {seed}")
    check_arrivals_until(one, seed, lambda counted: counted["switches"] > 10)


@pytest.mark.parametrize("plan", ["off 1", more("off 15"), "off 17", more("off 40"), "coin 5"])
def test_the_drafts_kv_is_that_of_a_run_never_off(one: Crossing, plan: str) -> None:
    check_draft_kv(one, plan)


@pytest.mark.parametrize("plan", ["off 17", more("off 1"), more("coin 5")])
def test_the_drafts_kv_of_several_requests(one: Crossing, plan: str) -> None:
    check_draft_kv(one, plan, count=3)


# By a draft-extend at the return; by the keys and values alone after 16 steps.
@pytest.mark.parametrize("plan", [more("off 9"), "off 17"])
@pytest.mark.parametrize("count", [1, more(3)])
@pytest.mark.parametrize("fault", ["skip-one", "other-states", "shifted"])
def test_a_catching_up_that_is_wrong_is_seen(
    one: Crossing, plan: str, count: int, fault: str
) -> None:
    with pytest.raises(AssertionError, match=r"draft [kv] of request"):
        check_draft_kv(one, f"{plan} {fault}", count=count)
    one.client.flush_cache()


@pytest.mark.parametrize("new", [1, 10, CAPACITY, more(CAPACITY + 2), more(50)])
def test_a_prefix_that_was_generated_while_off(one: Crossing, new: int) -> None:
    check_prefix(one, new)


@pytest.fixture(scope="module")
def busy(
    servers: ServerPool, pairs: dict[Plan, Pair], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crossing]:
    """With overlap, and drafts right and wrong; in float32."""
    environment = {"SPEC_TEST_OVERLAP": "1"}
    folder = tmp_path_factory.mktemp("busy")
    pair = pairs[TINY_HALF]
    with serve(servers, pair, folder, *OVERLAPPED, dtype="float32", **environment) as server:
        yield server


def switched(counted: dict[str, int]) -> bool:
    return counted["switches"] > 5


def test_penalties_count_alike_in_steps_of_both_kinds(busy: Crossing) -> None:
    busy.plan("coin 11")
    check_penalties_until(busy, 11, switched)


@pytest.mark.parametrize("fault", ["uncounted", more("unpenalized")])
def test_a_plain_step_that_is_not_counted_is_seen(busy: Crossing, fault: str) -> None:
    busy.plan(f"coin 12 {fault}")
    with pytest.raises(AssertionError, match="Counted"):
        check_penalties(busy, 12)
    busy.plan("")


@settings(max_examples=4, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.integers(0, 99), st.lists(drawn_asks.asks(), min_size=8, max_size=16))
def test_drawn_requests_cross_and_get_the_plain_answers(
    plain: Client, busy: Crossing, seed: int, asks: list[Ask]
) -> None:
    """Penalties, grammars, processors, biases, stops, seeds and logprobs, in one batch."""
    busy.plan(f"coin {seed}")
    check_drawn(plain, busy, asks)


def test_seeded_sampling_draws_the_plain_tokens(plain: Client, busy: Crossing) -> None:
    """Log probabilities included, and those of the runners-up."""
    parameters: list[dict[str, Any]] = [
        {"temperature": 4.0, "sampling_seed": seed, "max_new_tokens": 9 + 5 * seed, **filters}
        for seed in (1, 2, 3)
        for filters in ({}, {"top_k": 20}, {"top_p": 0.8}, {"frequency_penalty": 1.5})
    ]
    busy.plan("coin 8")
    before = busy.info()
    asks = [
        Ask(tuple(prompt(21, 30)), {"ignore_eos": True, **one}, logprobs=True) for one in parameters
    ]
    check_drawn(plain, busy, asks)
    assert busy.info()["switches"] - before["switches"] > 2


@pytest.mark.parametrize("overlap", [{"SPEC_TEST_OVERLAP": "1"}, more({})], ids=["overlap", "none"])
def test_a_tree_and_requests_that_are_retracted(
    servers: ServerPool, tiny: Pair, tmp_path: Path, overlap: dict[str, str]
) -> None:
    """Requests are prefilled again, those generated so far included; the draft proposes trees."""
    environment = {"SPEC_TEST_RETRACT": "1", **overlap}
    flag = "--skip-speculative-self-test"
    with serve(servers, tiny, tmp_path, flag, topk=2, dtype="float32", **environment) as server:
        server.plan("coin 9")

        def enough(counted: dict[str, int]) -> bool:
            retracted = "Testing retraction. #retracted_reqs: 1" in server.server.log.read_text()
            return retracted and counted["switches"] > 5

        check_arrivals_until(server, 9, enough, count=16)
        assert check_penalties_until(server, 9, switched, count=16) > 0


@pytest.mark.full  # two servers of the embedded pair in float32
def test_a_trained_draft_and_grammars_across_random_decisions(
    servers: ServerPool, embedded: Pair, tmp_path: Path
) -> None:
    """Real text, drafts right and wrong, and requests with a constraint among them."""
    rows = [json.loads(line) for line in held_out().read_text().splitlines()]
    prompts = [row["prompt_ids"] for row in rows[:60:10]]
    greedy = {"temperature": 0, "ignore_eos": True}
    sampling: list[dict[str, Any]] = [{**greedy, "max_new_tokens": 24 + 9 * n} for n in range(4)]
    sampling += [{"temperature": 0, "max_new_tokens": 40, "regex": "[0-9]{12}( [a-z]+){6}"}] * 2
    body = {"input_ids": prompts, "sampling_params": sampling}
    plain = servers.client(lossless.plain(embedded))
    expected = plain.post("/generate", **body).json()
    launch = Launch(embedded.target, Speculation(embedded.draft, STEPS, 1, 4), "float32", FLAGS)
    with crossing(servers, launch, tmp_path) as server:
        for plan in ("coin 1", "coin 2", ""):
            server.client.flush_cache()
            server.plan(plan)
            found = server.client.post("/generate", **body).json()
            assert [a["output_ids"] for a in found] == [a["output_ids"] for a in expected]
        assert server.info()["switches"] > 5


def check_ranks(servers: ServerPool, tiny: Pair, folder: Path, ranks: int) -> None:
    """The ranks compare every decision and every verify; one of them is slow."""
    flags = ("--tp-size", str(ranks), "--skip-speculative-self-test")
    environment = {
        "SGLANG_ENABLE_RANK_CONSENSUS_CHECKER": "1",
        "SPEC_TEST_SLOW_RANK": str(ranks - 1),
    }
    with serve(servers, tiny, folder, *flags, dtype="float32", **environment) as server:
        check_arrivals_until(server, ranks, both_ways, count=12, longest=40)
        server.plan("coin 6")
        check_random_arrivals(server, ranks + 1, count=12, longest=40)
        check_penalties(server, ranks + 2, count=12, longest=40)
        assert server.server.returncode is None


def test_two_ranks_decide_alike(servers: ServerPool, tiny: Pair, tmp_path: Path) -> None:
    check_ranks(servers, tiny, tmp_path, 2)


@pytest.mark.full  # eight ranks on two cores: a minute
def test_eight_ranks_decide_alike(servers: ServerPool, tiny: Pair, tmp_path: Path) -> None:
    check_ranks(servers, tiny, tmp_path, 8)


REFUSED = {
    "--speculative-adaptive": ["--speculative-adaptive"],
    "--enable-mixed-chunk": ["--enable-mixed-chunk"],
    "never be reached": ["--speculative-disable-batch-threshold", "17"],
    "--speculative-enable-batch-threshold 3": ["--speculative-enable-batch-threshold", "3"],
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_served_is_refused_before_anything_is_loaded(
    servers: ServerPool, tiny: Pair, reason: str
) -> None:
    flags = (*FLAGS, *REFUSED[reason])
    launch = Launch(tiny.target, Speculation(tiny.draft, STEPS, 1, STEPS + 1), arguments=flags)
    server = servers.start(launch, "refused")
    with pytest.raises(ServerError, match=reason):
        server.wait_ready()
    server.stop()
    assert " TP0]" not in server.log.read_text(errors="replace")
