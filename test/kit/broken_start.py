"""`sglang.launch_server` whose start fails as a device makes it fail: a program for tests only.

`SPEC_TEST_BROKEN` says how:

    memory STAGE    the allocator is asked for more than there is, in this stage of construction
    crash STAGE     native code reads where nothing is
    port STAGE      another program takes the server's port, in this stage of construction
    verify MODE     the last token that a verify says is wrong, only in the steps of one mode of the
                    self-test: `greedy`, `hit`, `batch`, `sampled`, `chunked`, `grammar`
    skip draft      the draft's graphs are left out; the CPU has none anyway
    capture MODEL   the model (`target` or `draft`, of the Llama sort) synchronises while it is
                    captured, which CUDA does not allow; the CPU captures nothing
    controller PART the data-parallel controller fails: as it begins (`begin`), or in the thread
                    that starts a rank (`thread`)
    detokenizer loop    the detokenizer fails at the first answer of a rank

Runs under both start methods: a forked rank inherits what is replaced here, a spawned one imports
this file as its main module.
"""

from __future__ import annotations

import ctypes
import functools
import os
import runpy
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from sglang.srt.managers import data_parallel_controller, detokenizer_manager
from sglang.srt.models import llama, llama_eagle3
from sglang.srt.spec_hardening import construction
from sglang.srt.speculative import eagle_worker_common, eagle_worker_v2

VARIABLE = "SPEC_TEST_BROKEN"
OTHER = socket.socket()
MODELS = {"target": llama.LlamaForCausalLM, "draft": llama_eagle3.LlamaForCausalLMEagle3}


def at(stage: str, act: Callable[[], object]) -> None:
    """Do it when `stage` begins."""
    enter = construction.enter

    def entered(name: str) -> None:
        enter(name)
        if name == stage:
            act()

    construction.enter = entered


def starve(stage: str) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    at(stage, lambda: torch.empty(1 << 50, dtype=torch.uint8, device=device))


def crash(stage: str) -> None:
    at(stage, lambda: ctypes.string_at(0))


def spoil_capture(model: str) -> None:
    cls = MODELS[model]
    forward = cls.forward

    @functools.wraps(forward)
    def spoilt(*args: Any, **kwargs: Any) -> Any:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()
        return forward(*args, **kwargs)

    cls.forward = spoilt


# Whether a verify batch is one of the mode's.
MODES: dict[str, Callable[[Any], bool]] = {
    "greedy": lambda batch: len(batch.reqs) == 1 and not batch.reqs[0].cached_tokens,
    "hit": lambda batch: len(batch.reqs) == 1 and batch.reqs[0].cached_tokens > 0,
    "batch": lambda batch: len(batch.reqs) > 1,
    "sampled": lambda batch: not batch.sampling_info.is_all_greedy,
    "chunked": lambda batch: batch.reqs[0].extend_batch_idx > 1,
    "grammar": lambda batch: batch.has_grammar,
}


def other_digit(token: torch.Tensor) -> torch.Tensor:
    """Of the embedded pair's vocabulary, where those are 32 to 41; the end stays the end."""
    return torch.where((token >= 32) & (token < 42), 32 + (token - 32 + 5) % 10, token)


def spoil_verify(mode: str) -> None:
    plain = eagle_worker_common.eagle_sample

    def spoilt(verify_input: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        predict, accept_lens, accept_index = plain(verify_input, batch, *args, **kwargs)
        last = accept_index[0, int(accept_lens[0]) - 1]
        if MODES[mode](batch):
            predict[last] = other_digit(predict[last]) if batch.has_grammar else predict[last] ^ 1
        return predict, accept_lens, accept_index

    eagle_worker_common.eagle_sample = spoilt


def take_port(stage: str) -> None:
    """Bound and not listened to: who asks is refused at once."""
    port = int(sys.argv[sys.argv.index("--port") + 1])
    at(stage, lambda: OTHER.bind(("127.0.0.1", port)))


def broken(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise RuntimeError("broken")


def break_controller(part: str) -> None:
    cls = data_parallel_controller.DataParallelController
    setattr(
        cls,
        {"begin": "launch_dp_schedulers", "thread": "launch_tensor_parallel_group"}[part],
        broken,
    )


def break_detokenizer(_part: str) -> None:
    detokenizer_manager.DetokenizerManager.handle_batch_token_id_out = broken


def skip_capture(_model: str) -> None:
    eagle_worker_v2.EagleDraftWorker._capture_cuda_graphs = lambda worker: None


how, _, what = os.environ[VARIABLE].partition(" ")
{
    "memory": starve,
    "crash": crash,
    "capture": spoil_capture,
    "skip": skip_capture,
    "port": take_port,
    "verify": spoil_verify,
    "controller": break_controller,
    "detokenizer": break_detokenizer,
}[how](what)

if __name__ == "__main__":
    # A spawned rank imports what `sys.modules` has as the main module: that stays this file.
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=False)
