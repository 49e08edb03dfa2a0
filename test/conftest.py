"""Fixtures of the whole suite: threads pinned, model pairs, one pool of shared servers."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

# Before torch is imported anywhere: more OpenMP threads than cores collapse the throughput.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from kit import gpus, not_run
from kit.servers import ServerPool
from sglang_spec.models import Pair, embedded_pair, tiny_pair

UNSTABLE = re.compile(r"\bat 0x[0-9a-f]+>|\{'[^':]*'(, '[^':]*')+\}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run tests marked `full`")
    parser.addoption(
        "--require-gpu", action="store_true", help="fail where the tests find no CUDA GPU"
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So a shell starts what is to run in the background, and all that we start inherits it:
        # what is interrupted by a test would not notice.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    missing = gpus.why_none() if config.getoption("--require-gpu") else ""
    if missing:
        raise pytest.UsageError(f"this run needs a CUDA GPU (--require-gpu): {missing}")
    if importlib.util.find_spec("hypothesis"):
        from kit.examples import load_profile

        load_profile(others=bool(config.getoption("--full")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Two workers have to agree on the names; an address or the order of a set differs between them.
    if unstable := [item.nodeid for item in items if UNSTABLE.search(item.nodeid)]:
        raise pytest.UsageError(f"names that differ from process to process: {unstable[:3]}")
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="needs --full (`make test-full`)")
    for item in items:
        if "full" in item.keywords:
            item.add_marker(skip)


@pytest.hookimpl(optionalhook=True)  # a run in one process needs no xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from kit.lanes import Lanes

    return Lanes(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = not_run.lines(terminalreporter.stats.get("skipped", []))
    if lines:
        terminalreporter.section(lines[0])
        for line in lines[1:]:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def servers() -> Iterator[ServerPool]:
    pool = ServerPool()
    try:
        yield pool
    finally:
        pool.close()


@pytest.fixture(scope="session")
def embedded() -> Pair:
    """SmolLM2-135M-Instruct and its trained draft."""
    return embedded_pair()


@pytest.fixture(scope="session")
def tiny() -> Pair:
    """The pair that is right by construction: every draft is accepted, or something is wrong."""
    return tiny_pair()
