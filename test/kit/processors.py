"""Custom logit processors for tests, as strings that a server in any process can read.

Each is written by value, so its class may use nothing but its own imports.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor


class OnlyToken(CustomLogitProcessor):
    """Allows `token` only."""

    def __call__(self, logits: Any, custom_param_list: Any = None) -> Any:
        for row, parameters in zip(logits, custom_param_list, strict=True):
            kept = row[parameters["token"]].item()
            row.fill_(float("-inf"))
            row[parameters["token"]] = kept
        return logits


class EveryFifth(CustomLogitProcessor):
    """Reads the output: token `token` after every fifth one, and no token twice in a row."""

    def __call__(self, logits: Any, custom_param_list: Any = None) -> Any:
        for row, parameters in zip(logits, custom_param_list, strict=True):
            output = list(parameters["__req__"].output_ids)
            if len(output) % 5 == 4:
                row[parameters["token"]] = row.max() + 9
            if output:
                row[output[-1]] = float("-inf")
        return logits


class Remembers(CustomLogitProcessor):
    """Keeps a number in its parameters: after a while it asks for tokens by it, then rests."""

    def __call__(self, logits: Any, custom_param_list: Any = None) -> Any:
        for row, parameters in zip(logits, custom_param_list, strict=True):
            seen = parameters.setdefault("seen", [])
            best = int(row.argmax())
            if len(seen) % 3 == 2:
                best = (best + len(seen)) % len(row)
                row[best] = row.max() + 9
            seen.append(best)
        return logits


def text_of(kind: type[CustomLogitProcessor]) -> str:
    """What a request gives as `custom_logit_processor`."""
    # dill writes a class of the main module by value, any other as a name to import.
    copied = type(kind.__name__, kind.__bases__, dict(vars(kind)))
    copied.__module__ = "__main__"
    return copied.to_str()
