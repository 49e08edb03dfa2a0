"""EAGLE3 over several ranks: the tokens and the accept counts of one rank without speculation.

The ranks are gloo processes on the CPU. They are forked from one preloaded process, so eight start
in half a minute on two cores.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from kit import lossless
from kit.faulty_server import FaultyServer
from kit.servers import LOGS, ServerPool, spawner
from sglang_spec import host, process
from sglang_spec.client import Answer, Client
from sglang_spec.models import Pair, embedded_pair
from sglang_spec.server import Launch, Server, Speculation

STEPS = 3
CYCLES = 4
NEW = 1 + CYCLES * (STEPS + 1)  # the prefill's token and full cycles
PROMPTS = [[0, *range(70, 110)], [0, *range(300, 200, -3)], [0, 77, 78]]
CONSENSUS = {"SGLANG_ENABLE_RANK_CONSENSUS_CHECKER": "1"}
# How a request ends whose server does: the connection is closed, or cut. A hang would be a timeout.
CUT = (httpx.RemoteProtocolError, httpx.ReadError)


def over_ranks(pair: Pair, ranks: int, dtype: str = "bfloat16") -> Launch:
    """A launch with EAGLE3 over `ranks` ranks that watch each other's decisions.

    Two ranks of bfloat16 run the start-up self-test too; the others leave its 46 cycles out.
    """
    arguments = ["--tp-size", str(ranks), "--sleep-on-idle"]
    if ranks > 2 or dtype != "bfloat16":
        arguments.append("--skip-speculative-self-test")
    speculation = Speculation(pair.draft, STEPS, 1, STEPS + 1)
    return Launch(pair.target, speculation, dtype, arguments, CONSENSUS)


@contextmanager
def running(server: Server) -> Iterator[Client]:
    """Serve until the block ends; not pooled, as idle ranks would take time from other tests."""
    with server:
        server.wait_ready()
        client = Client(server.url)
        try:
            yield client
        finally:
            client.close()


def alone(client: Client) -> Answer:
    """The first prompt by itself, not from the cache."""
    client.flush_cache()
    return client.generate(PROMPTS[0], NEW, ignore_eos=True)


def answers(client: Client) -> list[Answer]:
    """One prompt alone, then all in one batch."""
    first = alone(client)
    client.flush_cache()
    return [first, *client.generate_batch(PROMPTS, NEW, ignore_eos=True)]


def plain_tokens(servers: ServerPool, pair: Pair, dtype: str) -> list[tuple[int, ...]]:
    """What one rank without speculation answers, which is what every launch here must answer."""
    client = servers.client(Launch(pair.target, dtype=dtype))
    return [answer.tokens for answer in answers(client)]


def check_tokens(found: list[Answer], expected: list[tuple[int, ...]]) -> None:
    assert [answer.tokens for answer in found] == expected


def check_all_accepted(found: list[Answer]) -> None:
    """On the tiny pair every cycle accepts every draft, on any number of ranks."""
    for answer in found:
        assert answer.correct_drafts == (0, 0, 0, CYCLES), answer.correct_drafts


def check_tiny(servers: ServerPool, tiny: Pair, ranks: int, dtype: str) -> None:
    expected = plain_tokens(servers, tiny, dtype)
    with running(servers.start(over_ranks(tiny, ranks, dtype), f"tp{ranks}")) as client:
        found = answers(client)
    check_tokens(found, expected)
    check_all_accepted(found)


def test_tp2_decodes_with_eagle3(servers: ServerPool, tiny: Pair) -> None:
    check_tiny(servers, tiny, 2, "bfloat16")


def test_tp4_decodes_with_eagle3(servers: ServerPool, tiny: Pair) -> None:
    check_tiny(servers, tiny, 4, "bfloat16")


@pytest.mark.full  # the same three starts again in the other precision
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_tp_decodes_with_eagle3_in_float32(servers: ServerPool, tiny: Pair, ranks: int) -> None:
    check_tiny(servers, tiny, ranks, "float32")


@pytest.mark.full  # each rank reads the whole checkpoint in float32: 40 s a start
@pytest.mark.parametrize("ranks", [2, 4])
def test_tp_of_the_embedded_pair(servers: ServerPool, embedded: Pair, ranks: int) -> None:
    """A trained draft, with drafts right and wrong; zero heads make 9/3 divisible."""
    base = servers.client(lossless.plain(embedded))
    expected = [answer.tokens for answer in base.generate_batch(PROMPTS, 16, ignore_eos=True)]
    launch = over_ranks(embedded_pair(heads="12/4"), ranks, "float32")
    with running(servers.start(launch, f"wide-tp{ranks}")) as client:
        found = client.generate_batch(PROMPTS, 16, ignore_eos=True)
    check_tokens(found, expected)
    accepted = [answer.correct_drafts for answer in found]
    assert sum(sum(counts[1:]) for counts in accepted) > 0
    assert sum(counts[0] for counts in accepted) > 0


def test_unknown_memory_is_refused_before_a_rank_starts(servers: ServerPool, tiny: Pair) -> None:
    command = over_ranks(tiny, 2).command(process.free_port())
    flag = command.index("--max-total-tokens")
    log = LOGS / "test-unknown-memory.log"
    child = spawner(servers.zygote)(
        command[:flag] + command[flag + 2 :], log, host.engine_environment()
    )
    try:
        assert child.wait(600) != 0
    finally:
        process.stop(child)
    text = log.read_text(errors="replace")
    assert "--max-total-tokens is not set, and 2 ranks" in text
    assert " TP0]" not in text


@pytest.fixture(scope="module")
def tp8(
    servers: ServerPool, tiny: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultyServer]:
    """Eight ranks that can be made faulty."""
    file = tmp_path_factory.mktemp("fault") / "fault"
    with FaultyServer(servers, over_ranks(tiny, 8), file, "tp8") as server:
        yield server


def test_tp8_decodes_with_eagle3(servers: ServerPool, tiny: Pair, tp8: FaultyServer) -> None:
    expected = plain_tokens(servers, tiny, "bfloat16")
    tp8.plant("")
    found = answers(tp8.client)
    check_tokens(found, expected)
    check_all_accepted(found)


def test_tp8_samples_the_same_on_every_rank(tp8: FaultyServer) -> None:
    """The ranks compare each step; a rank whose generator has another state changes nothing."""
    tp8.plant("generator 6")
    found = tp8.client.generate_batch(PROMPTS, NEW, temperature=4.0, ignore_eos=True)
    tp8.plant("")
    assert tp8.server.returncode is None
    assert sum(sum(answer.correct_drafts[:3]) for answer in found) > 0  # not greedy


def test_tp8_notices_a_wrong_shard_of_one_rank(
    servers: ServerPool, tiny: Pair, tp8: FaultyServer
) -> None:
    expected = plain_tokens(servers, tiny, "bfloat16")
    tp8.plant("target-shard 5")
    found = alone(tp8.client)
    tp8.plant("")
    with pytest.raises(AssertionError):
        check_tokens([found], expected[:1])


def test_tp8_notices_a_draft_that_is_sharded_differently(
    servers: ServerPool, tiny: Pair, tp8: FaultyServer
) -> None:
    expected = plain_tokens(servers, tiny, "bfloat16")
    tp8.plant("draft-shard -")
    found = alone(tp8.client)
    tp8.plant("")
    check_tokens([found], expected[:1])  # the target decides; only the accept counts show it
    with pytest.raises(AssertionError):
        check_all_accepted([found])


def test_tp8_is_whole_again(servers: ServerPool, tiny: Pair, tp8: FaultyServer) -> None:
    """The faults above, and nothing else, made the difference."""
    test_tp8_decodes_with_eagle3(servers, tiny, tp8)


def test_tp8_ranks_that_disagree_end_with_a_name(tp8: FaultyServer) -> None:
    """Last of the module: the server ends."""
    tp8.plant("accept 3")
    client = Client(tp8.server.url, timeout=600)
    with pytest.raises(CUT):
        client.generate(PROMPTS[0], 400, ignore_eos=True)
    deadline = time.monotonic() + 300
    while tp8.server.returncode is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert tp8.server.returncode not in (None, 0)
    client.close()
    log = tp8.server.log.read_text(errors="replace")
    assert "Found rank divergence" in log and "EAGLE verify: accept lengths" in log
