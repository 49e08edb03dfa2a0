"""A program that makes an `Engine`, for tests of what its caller sees. Run as a script.

argv: JSON object {"engine": {Engine arguments}, "thread": make it outside the main thread,
"handler": set a SIGQUIT handler that returns, "generate": new tokens of each request,
"requests": how many}. Prints one JSON object a line: {"event": ..., ...}, the last of them
{"event": "alive", "children": how many are left} if the program itself came to its end.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import multiprocessing
import signal
import sys
import threading
import time
from typing import Any


def say(event: str, **more: Any) -> None:
    print(json.dumps({"event": event, "t": round(time.monotonic(), 2), **more}), flush=True)


def handler(signum: int, frame: object) -> None:
    say("handler")


def use(plan: dict[str, Any]) -> None:
    from sglang.srt.entrypoints.engine import Engine

    arguments = dict(plan["engine"])
    if plan.get("handler"):
        arguments["custom_sigquit_handler"] = handler
    engine = None
    try:
        engine = Engine(**arguments)
        info = engine.get_server_info()
        say("ready", self_test=info.get("speculative_self_test"))
        for _ in range(plan.get("requests", 1)):
            sampling = {"temperature": 0, "max_new_tokens": plan["generate"], "ignore_eos": True}
            answer = engine.generate(input_ids=[1, 5, 6, 7], sampling_params=sampling)
            say("answer", tokens=answer["output_ids"])
    except BaseException as error:
        say("raised", kind=type(error).__name__, text=str(error))
    finally:
        if engine is not None:
            engine.shutdown()


def main() -> None:
    faulthandler.register(signal.SIGUSR2, all_threads=True)  # `standing` asks where it stands
    plan = json.loads(sys.argv[1])
    if plan.get("thread"):
        thread = threading.Thread(target=use, args=(plan,))
        thread.start()
        thread.join()
    else:
        use(plan)
    # What a failed launch left behind is garbage by now, and must not hang who collects it.
    faulthandler.dump_traceback_later(30)
    gc.collect()
    say("alive", children=len(multiprocessing.active_children()))
    # What keeps the program from its end then is said on stderr.
    faulthandler.dump_traceback_later(30)


if __name__ == "__main__":
    main()
