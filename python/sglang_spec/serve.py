"""`sglang-spec serve`: the embedded pair on a server that a person can talk to."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from .models import ModelError, embedded_pair
from .server import Launch, Server, ServerError, Speculation


def keep_up(port: int, num_steps: int) -> int:
    """Serve until Ctrl-C (exit 0); 1 if the server ends by itself or the pair cannot be made."""
    try:
        pair = embedded_pair()
    except ModelError as error:
        print(f"serve: {error}", file=sys.stderr)
        return 1
    speculation = Speculation(pair.draft, num_steps, 1, num_steps + 1)
    launch = Launch(pair.target, speculation, threads=2)
    print("serve: " + " ".join(launch.command(port)), file=sys.stderr)
    print("serve: starting, about half a minute …", file=sys.stderr)
    try:
        with Server(launch, Path("build/logs/serve.log"), port) as server:
            server.wait_ready()
            print(
                f"curl -s {server.url}/v1/chat/completions -H 'Content-Type: application/json' "
                '-d \'{"model": "default", "temperature": 0, "messages": '
                '[{"role": "user", "content": "What is 2+2? Answer briefly."}]}\'',
                flush=True,
            )
            print(f"serve: log in {server.log}; Ctrl-C stops it", file=sys.stderr)
            while server.returncode is None:
                time.sleep(0.5)
            print(f"serve: the server ended by itself\n{server.log_tail()}", file=sys.stderr)
            return 1
    except ServerError as error:
        print(f"serve: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
