"""Faulty pairs against real launches: the parent refuses them before it spawns anything."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from kit.faults import FAULTS, Fault
from kit.launch_watch import engines, watch
from kit.plain_faults import launch_of
from kit.servers import ServerPool
from sglang_spec.models import Pair
from sglang_spec.models.tiny import TINY_HALF, tiny_pair
from sglang_spec.server import Launch, Server, Speculation

LAUNCHABLE = [fault for fault in FAULTS if fault.launchable]


@pytest.mark.parametrize("fault", LAUNCHABLE, ids=lambda fault: fault.name)
def test_fault_ends_the_launch(
    fault: Fault, servers: ServerPool, tiny: Pair, tmp_path: Path
) -> None:
    pair = fault.make(tiny_pair(TINY_HALF) if fault.reduced else tiny, tmp_path)
    ended = watch(servers.start(launch_of(fault, pair), f"fault-{fault.name}"))
    assert ended.returncode not in (0, None)
    assert not ended.engines, "the parent spawned no scheduler"
    assert "Load weight begin" not in ended.log
    assert f"[{fault.code}]" in ended.log
    assert fault.says in ended.log
    print(f"refused after {ended.seconds:.1f} s")


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_file_in_place_of_the_draft(file: str, servers: ServerPool, tiny: Pair) -> None:
    """Files of other kinds (GGUF) are for upstream's other loaders."""
    launch = Launch(tiny.target, Speculation(tiny.draft / file))
    ended = watch(servers.start(launch, "draft-is-a-file"))
    assert ended.returncode not in (0, None) and not ended.engines
    assert "[draft-not-found]" in ended.log and "name the folder that holds" in ended.log


def test_right_pair_starts_and_says_what_it_captures(servers: ServerPool, tiny: Pair) -> None:
    """Also shows that the watch sees the processes of a server that did start."""
    server = servers.server(Launch(tiny.target, Speculation(tiny.draft)))
    assert engines(server.pid)
    log = server.log.read_text()
    assert log.count("Draft contract: accepted in ") == 1, "once, and in the parent only"
    assert "slot 0 takes output of layer 1 (loop index 2), slot 1 takes output of layer 3" in log
    told = _told(server)
    assert (told["accepted"], told["mode"], told["problems"]) == (True, "enforce", [])
    assert told["slots"][0] == "slot 0 takes output of layer 1 (loop index 2)"


def _told(server: Server) -> dict[str, Any]:
    """What `/server_info` says was decided."""
    info = httpx.get(f"{server.url}/server_info", timeout=30).json()
    told: dict[str, Any] = info["spec_hardening"]["contract"]
    return told


def test_report_mode_goes_on(servers: ServerPool, tiny: Pair, tmp_path: Path) -> None:
    fault = next(fault for fault in FAULTS if fault.name == "reversed")
    pair = fault.make(tiny, tmp_path)
    launch = Launch(
        pair.target, Speculation(pair.draft), arguments=("--speculative-contract", "report")
    )
    server: Server = servers.start(launch, "report-mode")
    try:
        server.wait_ready()
        assert "[ids-order]" in server.log.read_text()
        told = _told(server)
        assert (told["accepted"], told["mode"]) == (False, "report")
        assert any("[ids-order]" in problem for problem in told["problems"])
    finally:
        server.stop()


ENGINE = """
import sys
import sglang
if __name__ == "__main__":
    sglang.Engine(
        model_path=sys.argv[1], speculative_algorithm="EAGLE3", device="cpu",
        speculative_draft_model_path=sys.argv[2], speculative_num_steps=3,
        speculative_eagle_topk=1, speculative_num_draft_tokens=4,
    )
"""


def test_engine_raises(servers: ServerPool, tiny: Pair, tmp_path: Path) -> None:
    fault = next(fault for fault in FAULTS if fault.name == "embedding")
    pair = fault.make(tiny, tmp_path)
    script = tmp_path / "engine.py"
    script.write_text(ENGINE)

    class Offline(Launch):
        def command(self, port: int) -> list[str]:
            return [sys.executable, "-m", str(script), str(self.model), str(pair.draft)]

    ended = watch(servers.start(Offline(pair.target), "engine"))
    assert ended.returncode == 1
    assert not ended.engines
    assert "ContractError" in ended.log and "[ids-embedding]" in ended.log
