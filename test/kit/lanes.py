"""Which tests run beside which, where pytest has two workers (`make test-spec`).

A worker holds the servers that its tests share, and two cores carry one busy server each. So the
tests with servers make up two lanes, each run by one worker from its start to its end; unit tests
go file by file to whichever worker is free.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

SERVERS = "tests that break servers, measure time or count processes"
ANSWERS = "tests that compare answers, and do not care how long these take"
COMPARE = (
    "acceptance",
    "capture_dump",
    "decode_checks",
    "equality",
    "fidelity",
    "fidelity_drawn",
    "fidelity_ends",
    "fidelity_on_embedded",
    "fidelity_sampled",
    "kimi",
    "openai_client",
    "parsers",
    "parsers",
    "sampling",
    "tree",
)


def lane(file: str) -> str:
    """The lane of a test file, given as in a test's id: its path from the root, with slashes."""
    folder, _, name = file.rpartition("/")
    if folder in ("test/cpu", "test/gpu"):
        compares = name.removeprefix("test_").removesuffix(".py") in COMPARE
        return ANSWERS if compares else SERVERS
    return file


class Lanes(LoadScopeScheduling):
    """Sends whole lanes to workers."""

    def _split_scope(self, nodeid: str) -> str:
        return lane(nodeid.partition("::")[0])
