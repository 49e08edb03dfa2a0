"""Which adapters the rows of captured graphs want: buffers of each width are kept apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.lora.backend.chunked_backend import ChunkedSgmvLoRABackend
from sglang.srt.lora.backend.torch_backend import TorchNativeLoRABackend
from sglang.srt.lora.backend.triton_backend import TritonLoRABackend
from sglang.srt.spec_hardening.threshold import adapters
from sglang.srt.spec_hardening.threshold.plain_graphs import PlainGraphs

VERIFY, PLAIN = 4, 1
SERVED = {
    "csgmv": ChunkedSgmvLoRABackend,
    "triton": TritonLoRABackend,
    "torch_native": TorchNativeLoRABackend,
}


@pytest.fixture
def manager() -> Any:
    """Upstream's backend, after the verify's graphs were captured for 8 rows."""
    found = SimpleNamespace(lora_backend=TorchNativeLoRABackend(2, torch.device("cpu")))
    capture(found, 8, VERIFY)
    return found


def capture(manager: Any, rows: int, width: int) -> None:
    manager.max_bs_in_decode_cuda_graph = rows
    manager.lora_backend.init_decode_cuda_graph_batch_info(rows, width)


def written(manager: Any) -> tuple[int, int]:
    """Rows and width of the buffers that a batch would be written to."""
    info = manager.lora_backend.cuda_graph_batch_info
    return manager.max_bs_in_decode_cuda_graph, info.max_len


def test_capturing_the_plain_decode_leaves_the_verifys_buffers(manager: Any) -> None:
    of_verify = manager.lora_backend.cuda_graph_batch_info
    with adapters.apart(manager) as made:
        capture(manager, 6, PLAIN)
    assert manager.lora_backend.cuda_graph_batch_info is of_verify
    assert written(manager) == (8, VERIFY)
    runner = SimpleNamespace(attn_backend=None, decode_cuda_graph_runner=None)
    with PlainGraphs(graphs=object(), routing=made[0]).installed(runner):
        assert written(manager) == (6, PLAIN)
    assert manager.lora_backend.cuda_graph_batch_info is of_verify
    assert written(manager) == (8, VERIFY)


@pytest.mark.parametrize("name", adapters.BACKENDS)
def test_all_that_a_second_capture_makes_anew_is_kept_apart(name: str) -> None:
    backend = SERVED[name].__new__(SERVED[name])  # csgmv's own start asks for a launch's settings
    vars(backend).update(device=torch.device("cpu"), max_loras_per_batch=2)
    found = SimpleNamespace(lora_backend=backend)
    capture(found, 8, VERIFY)
    of_verify = dict(vars(backend))
    capture(found, 6, PLAIN)
    anew = {key for key, value in vars(backend).items() if of_verify.get(key) is not value}
    assert "cuda_graph_batch_info" in anew and anew <= set(adapters.BUFFERS)


def test_without_adapters_nothing_is_kept() -> None:
    with adapters.apart(None) as made:
        pass
    with made[0].installed():
        assert made[0] == adapters.Routing()


@pytest.mark.parametrize(
    ("backend", "loads_beside", "says"),
    [
        ("csgmv", False, []),
        ("triton", None, []),
        ("triton_v2", False, ["--lora-backend triton_v2 (csgmv, triton, torch_native can)"]),
        ("csgmv", True, ["--enable-lora-overlap-loading"]),
    ],
)
def test_what_is_not_kept_apart_is_refused(
    backend: str, loads_beside: bool | None, says: list[str]
) -> None:
    cfg = SimpleNamespace(
        enable_lora=True, lora_backend=backend, enable_lora_overlap_loading=loads_beside
    )
    assert list(adapters.refused(cfg)) == says
    cfg.enable_lora = False
    assert not list(adapters.refused(cfg))


def test_upstreams_experimental_kernels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = SimpleNamespace(enable_lora=True, lora_backend="csgmv", enable_lora_overlap_loading=False)
    assert not list(adapters.refused(cfg))
    monkeypatch.setenv("SGLANG_EXPERIMENTAL_LORA_OPTI", "1")
    assert list(adapters.refused(cfg)) == ["SGLANG_EXPERIMENTAL_LORA_OPTI with --enable-lora"]


@pytest.mark.parametrize("experts", [True, False])
def test_adapted_experts_are_refused(experts: bool) -> None:
    backend = SimpleNamespace(is_moe_lora=experts)
    runner = SimpleNamespace(lora_manager=SimpleNamespace(lora_backend=backend))
    assert adapters.refused_layers(runner) is experts
    assert not adapters.refused_layers(SimpleNamespace(lora_manager=None))
