"""What memory a server had for its KV pools, and what `doctor kv` foretells of that."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from sglang_spec.doctor.command import doctor
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation

from .faulty_server import FaultyServer
from .servers import ServerPool

GIB = 2**30
FREE = 2 * GIB
FRACTION = 0.4
PROGRAM = Path(__file__).with_name("fixed_memory.py")
MEMORY = "SPEC_TEST_MEMORY"  # read by PROGRAM
_FREE = re.compile(r"avail mem=([\d.]+) GB")


def of_log(text: str, fraction: float) -> float:
    """GiB for both pools, to 0.01: what is free once both models are loaded, less the part of what
    was free before that `--mem-fraction-static` leaves alone."""
    before, _, _ = text.partition("KV Cache is allocated")
    _, _, loading = before.partition("Load weight begin")
    free = [float(found) for found in _FREE.findall(loading)]
    return free[-1] - free[0] * (1 - fraction)


def foretold(pair: Pair, gigabytes: float, page: int) -> dict[str, Any]:
    """What `doctor kv` says of a pair before anything is loaded."""
    words = ["kv", "--target", str(pair.target), "--draft", str(pair.draft), "--json"]
    words += ["--kv-gb", str(gigabytes), "--page-size", str(page)]
    done = CliRunner().invoke(doctor, words)
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@dataclass(frozen=True)
class Unsized(Launch):
    """A launch that leaves the KV pools and the number of running requests to the server."""

    def command(self, port: int) -> list[str]:
        words = super().command(port)
        for flag in ("--max-total-tokens", "--max-running-requests"):
            place = words.index(flag)
            words = words[:place] + words[place + 2 :]
        return words


@dataclass(frozen=True)
class Sized:
    """A server that has sized its pools: what it says of itself, and its log."""

    info: dict[str, Any]
    log: str

    @property
    def tokens(self) -> int:
        return int(self.info["max_total_num_tokens"])


def sized(servers: ServerPool, pair: Pair, page: int, folder: Path) -> Sized:
    """A server with FRACTION of FREE for weights and KV."""
    flags = ("--mem-fraction-static", str(FRACTION), "--page-size", str(page))
    launch = Unsized(
        pair.target,
        Speculation(pair.draft),
        arguments=(*flags, "--skip-server-warmup"),
        environment={MEMORY: str(FREE)},
    )
    with FaultyServer(servers, launch, folder / "fault", f"capacity-{page}", PROGRAM) as found:
        info = found.client.get("/server_info").json()
        return Sized(info, found.server.log.read_text(errors="replace"))


def of_weights(pair: Pair) -> float:
    """GiB that FRACTION of FREE leaves beside both checkpoints."""
    folders = (pair.target, pair.draft)
    files = [file for one in folders for file in one.glob("*.safetensors")]
    return (FREE * FRACTION - sum(file.stat().st_size for file in files)) / GIB
