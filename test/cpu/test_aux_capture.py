"""Capture that checks itself, on real servers: what is told, and what a spoilt target does."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from kit import tampered
from kit.checkpoints import Config, copy
from kit.faults import IDS
from kit.servers import ServerPool
from sglang_spec.doctor.command import doctor
from sglang_spec.models import Pair
from sglang_spec.server import Launch, Server, ServerError, Speculation

PROMPT = [0, 5, 9, 44, 17]


def test_server_info_and_log_name_the_layers(servers: ServerPool, tiny: Pair) -> None:
    server = servers.server(Launch(tiny.target, Speculation(tiny.draft)))
    info = httpx.get(f"{server.url}/server_info", timeout=120).json()
    (state,) = info["internal_states"]
    assert state["eagle3_capture"] == {
        "slots": [
            {"slot": 0, "takes": "output of layer 1", "loop_index": 2},
            {"slot": 1, "takes": "output of layer 3", "loop_index": 4},
            {"slot": 2, "takes": "output of layer 5", "loop_index": 6},
        ],
        "layer_ids": [1, 3, 5],
        "convention": "each id is the layer whose output is taken (llama.py)",
        "fc_width": 768,
        "fingerprint": "none",
    }
    log = server.log.read_text()
    assert "EAGLE3 capture: 3 states of width 256: output of layer 1 (loop index 2)" in log


def test_doctor_asks_the_server(servers: ServerPool, tiny: Pair) -> None:
    server = servers.server(Launch(tiny.target, Speculation(tiny.draft)))
    pair = ("--target", str(tiny.target), "--draft", str(tiny.draft))
    done = CliRunner().invoke(doctor, ["capture", server.url, *pair, "--json"])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["server"].pop("fingerprint") == "none"
    assert told["server"] == told["contract"]
    plain = servers.server(Launch(tiny.target))
    done = CliRunner().invoke(doctor, ["capture", plain.url])
    assert done.exit_code == 1 and "captures no layers" in done.stderr


def test_ids_at_top_level_are_captured(servers: ServerPool, tiny: Pair, tmp_path: Path) -> None:
    """Upstream takes its default layers here, without a word."""

    def edit(config: Config) -> None:
        config[IDS] = config.pop("eagle_config")[IDS]

    draft = copy(tiny.draft, tmp_path / "draft", edit)
    client = servers.client(Launch(tiny.target, Speculation(draft)))
    answer = client.generate(PROMPT, 32, ignore_eos=True)
    assert len(answer.tokens) / answer.cycles == 4


# What a target may do to the list it is given, and what must be said of it.
SPOILT = {
    "one off": ("[i + 1 for i in ids]", "will capture before the layers [3, 5, 7]"),
    "embedding": ("[-1, *ids[1:]]", "will capture before the layers [0, 4, 6]"),
    "nothing": ("[]", "will capture before the layers none"),
}


# Every row starts a server of its own that only dies; one of them is enough for every run.
@pytest.mark.parametrize(
    "name",
    ["one off", *(pytest.param(n, marks=pytest.mark.full) for n in SPOILT if n != "one off")],
)
def test_target_that_will_capture_other_layers(
    name: str, servers: ServerPool, tiny: Pair, tmp_path: Path
) -> None:
    given, says = SPOILT[name]
    setup = f"""
from sglang.srt.models.llama import LlamaForCausalLM as Model
plain = Model.set_eagle3_layers_to_capture
Model.set_eagle3_layers_to_capture = lambda self, ids: plain(self, {given})
"""
    with pytest.raises(ServerError) as ended:
        _start(servers, tiny, tmp_path, setup)
    assert "CaptureError: the draft takes 3 states of width 256: output of layer 1" in _log(ended)
    assert says in _log(ended)


def test_forward_that_captures_too_few(servers: ServerPool, tiny: Pair, tmp_path: Path) -> None:
    """The list is right and a forward does not honour it: found at the first one."""
    setup = """
from sglang.srt.layers.aux_hidden_states import AuxHiddenStateList
plain = AuxHiddenStateList.capture
def capture(self, hidden, *, owned=False):
    if len(self) < 2:
        plain(self, hidden, owned=owned)
AuxHiddenStateList.capture = capture
"""
    with pytest.raises(ServerError) as ended:
        _start(servers, tiny, tmp_path, setup)
    assert "CaptureError: the target captured 2 states of widths [256, 256]" in _log(ended)
    assert "output of layer 5 (loop index 6)" in _log(ended)


def _start(servers: ServerPool, pair: Pair, folder: Path, setup: str) -> None:
    assert servers.zygote is not None
    spawn = tampered.spawner(servers.zygote, folder / "spoilt.py", setup)
    launch = Launch(pair.target, Speculation(pair.draft))
    with Server(launch, folder / "log", spawn=spawn) as server:
        server.wait_ready()
        httpx.post(f"{server.url}/generate", json={"input_ids": PROMPT}, timeout=600)
        raise AssertionError("the server answered")


def _log(ended: pytest.ExceptionInfo[ServerError]) -> str:
    return str(ended.value)
