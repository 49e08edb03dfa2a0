"""What plain SGLang does on this host, beside what the patched tree does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit.servers import ServerPool
from kit.upstream import plain_tree
from sglang_spec import host, process
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Speculation


@pytest.mark.full  # upstream's own start is cold: 38 s to see it refuse
def test_ours_starts_where_plain_upstream_cannot(
    servers: ServerPool, tiny: Pair, tmp_path: Path
) -> None:
    """Without AMX, upstream falls back to an attention backend its own draft does not have."""
    launch = Launch(tiny.target, Speculation(tiny.draft))
    log = tmp_path / "plain.log"
    path = os.pathsep.join([str(plain_tree()), os.environ.get("PYTHONPATH", "")])
    environment = {**host.engine_environment(), "PYTHONPATH": path}
    plain = process.spawn(launch.command(process.free_port()), log, environment)
    try:
        plain.wait(180)
    finally:
        process.stop(plain)
    text = log.read_text()
    assert plain.returncode != 0
    assert "will fallback to torch_native backend" in text
    assert "EAGLE is not supported in decode attention backend torch_native" in text
    assert "fired up and ready" not in text

    ours = servers.client(launch)
    assert ours.generate([0, 5, 9], 8, ignore_eos=True).cycles > 0
