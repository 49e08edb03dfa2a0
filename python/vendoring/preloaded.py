"""A program of its own: runs Python files as `python FILE` would, each in a fork of this process.

The modules that its arguments name are loaded once: of SGLang's import most of the time goes to
what it imports. SGLang itself is imported in the fork, from the folder that the request names.
`mails` starts it with the interpreter of the tests, so it needs nothing but that.

One JSON object a line on stdin and stdout:
    {"file": PATH, "folder": PATH, "places": [FOLDER, ...], "log": PATH}
    -> {"pid": N}, then {"status": N}
The process runs in `folder`, has a process group of its own (N), imports from `places` first, and
so does what it starts. A status below zero is a signal. The end of stdin ends the program.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import sys
import traceback
from typing import Any


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the imports print must not end up between the answers
    for name in sys.argv[1:]:
        with contextlib.suppress(ImportError):  # then the file imports it, or does without
            importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            status = _run(request)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        print(json.dumps({"pid": child}), file=answers)
        _, ended = os.waitpid(child, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(ended)}), file=answers)


def _run(request: dict[str, Any]) -> int:
    """In the fork: the exit status that the file as a program would have."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(request["folder"])
    os.environ["PYTHONPATH"] = os.pathsep.join(request["places"])
    sys.path[:0] = [os.path.dirname(os.path.abspath(request["file"])), *request["places"]]
    sys.argv = [request["file"]]
    try:
        runpy.run_path(request["file"], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # told as the interpreter itself would
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve()
