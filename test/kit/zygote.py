"""A process that has imported the engine once and forks a server for each request.

Importing SGLang costs 10 s a process on a small host, and a server is three processes or more; a
fork of a preloaded process costs milliseconds and shares its memory. What a server runs after the
fork is the real `sglang.launch_server`, nothing is replaced but the start method of its children
and how it chooses the port where its ranks meet: upstream tries one and lets it go for seconds, in
which a server of another test is given the same one now and then.

Only for the CPU: CUDA does not survive a fork, and OpenMP does only if no parallel region has run,
so this process imports and forks and computes nothing. An environment variable that the engine
reads while it is imported has to be set for the zygote itself, not for one server.

Protocol, one JSON object a line on stdin and stdout:
    {"op": "start", "run": MODULE or FILE.py, "argv": [...], "env": {...}, "log": PATH,
     "netns": PATH of a network namespace or ""} -> {"pid"}
    {"op": "poll", "pid": N} -> {"code": null while it runs, else exit code (negative: signal)}
End of stdin: every child is killed and the zygote ends.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import runpy
import signal
import sys
import traceback
from typing import Any

from sglang_spec.process import die_with_parent, free_port

from . import netns

PRELOAD = (
    "sglang.launch_server",
    "sglang.srt.entrypoints.engine",
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.managers.detokenizer_manager",
    "sglang.srt.managers.scheduler",
    "sglang.srt.speculative.eagle_worker_v2",
    "sglang.srt.models.registry",  # imports every model there is, for seconds in each rank
    "sglang.srt.models.llama",
    "sglang.srt.models.llama_eagle3",
    "sglang.srt.layers.attention.intel_amx_backend",
    "transformers.models.llama",
    "xgrammar",
)


def serve() -> None:
    die_with_parent()
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the imports print must not end up between the replies
    for name in PRELOAD:
        importlib.import_module(name)
    multiprocessing.set_start_method("fork", force=True)
    multiprocessing.set_start_method = lambda *a, **k: None  # type: ignore[assignment]
    importlib.import_module("sglang.srt.server_args").get_free_port_below_ephemeral = free_port  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()
    ended: dict[int, int] = {}
    print(json.dumps({"ready": True}), file=replies)
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "start":
            pid = os.fork()
            if pid == 0:
                replies.close()
                _become(request)
            ended.pop(pid, None)
            print(json.dumps({"pid": pid}), file=replies)
        else:
            print(json.dumps({"code": _poll(request["pid"], ended)}), file=replies)


def _become(request: dict[str, Any]) -> None:
    """Turn this fork into the requested program; never returns."""
    code = 1
    try:
        os.setsid()
        die_with_parent()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        null = os.open(os.devnull, os.O_RDONLY)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if request["netns"]:
            netns.become_host(request["netns"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = [request["run"], *request["argv"]]
        if request["run"].endswith(".py"):
            runpy.run_path(request["run"], run_name="__main__")
        else:
            runpy.run_module(request["run"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        multiprocessing.util._exit_function()  # joins or ends this program's own children
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _poll(pid: int, ended: dict[int, int]) -> int | None:
    if pid not in ended:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found == 0:
            return None
        ended[pid] = os.waitstatus_to_exitcode(status)
    return ended[pid]


if __name__ == "__main__":
    serve()
