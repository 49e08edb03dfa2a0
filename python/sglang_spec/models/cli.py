"""`sglang-spec models`: makes the model pairs ahead of time and says where they are.

Results go to stdout (one JSON object with `--json`), progress to stderr. Exit codes: 0 done,
1 a pair cannot be made or found, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from sglang_spec.models import cache
from sglang_spec.models.cache import ModelError
from sglang_spec.models.deepseek import PLANS, deepseek_pair
from sglang_spec.models.deepseek.plan import DRAFTS
from sglang_spec.models.embedded import embedded_pair
from sglang_spec.models.pair import Pair
from sglang_spec.models.tiny import TINY, TINY_HALF, tiny_pair

NAMES = ("smollm2", "tiny", "tiny-half")
# Made only where they are named: `prepare` without a name is for what every run needs.
BY_NAME = tuple(PLANS)


def main(argv: list[str] | None = None) -> int:
    """Runs one command; the exit code is returned, not raised (argparse raises on wrong usage)."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    name = getattr(arguments, "name", "smollm2")
    if name not in ("smollm2", "all") and (arguments.heads or arguments.source):
        parser.error("--heads and --source are for smollm2")
    if name not in PLANS and getattr(arguments, "draft", None):
        parser.error(f"--draft is for {', '.join(PLANS)}")
    try:
        code: int = arguments.run(arguments)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglang-spec models", description="Test and demo models.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    prepare = commands.add_parser("prepare", help="make pairs that are not made yet")
    prepare.add_argument("name", nargs="?", choices=(*NAMES, *BY_NAME, "all"), default="all")
    prepare.set_defaults(run=_prepare)
    path = commands.add_parser("path", help="print the folders of a pair, making it if needed")
    path.add_argument("name", choices=(*NAMES, *BY_NAME))
    path.set_defaults(run=_path)
    listing = commands.add_parser("list", help="list what is made")
    listing.set_defaults(run=_list)
    for command in (prepare, path):
        command.add_argument("--heads", help="smollm2 with zero heads, for TP: 12/4, 24/8")
        command.add_argument("--source", type=Path, help="wheel or GGUF of smollm2 at hand")
        command.add_argument("--draft", choices=DRAFTS, help="which of a DeepSeek target's drafts")
    for command in (prepare, path, listing):
        command.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser


def _pair(name: str, arguments: argparse.Namespace) -> Pair:
    if name == "smollm2":
        return embedded_pair(arguments.heads, arguments.source)
    if name in PLANS:
        return deepseek_pair(name, arguments.draft or DRAFTS[0])
    return tiny_pair(TINY if name == "tiny" else TINY_HALF)


def _prepare(arguments: argparse.Namespace) -> int:
    names = NAMES if arguments.name == "all" else (arguments.name,)
    pairs = {name: _pair(name, arguments) for name in names}
    if arguments.json:
        print(json.dumps({name: _paths(pair) for name, pair in pairs.items()}))
    else:
        for name, pair in pairs.items():
            print(f"{name}: target {pair.target}, draft {pair.draft}")
    return 0


def _path(arguments: argparse.Namespace) -> int:
    pair = _pair(arguments.name, arguments)
    print(json.dumps(_paths(pair)) if arguments.json else f"{pair.target}\n{pair.draft}")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    found = cache.entries()
    if arguments.json:
        rows = [{"name": e.name, "path": str(e.path), "bytes": e.size} for e in found]
        print(json.dumps({"root": str(cache.root()), "entries": rows}))
        return 0
    for entry in found:
        print(f"{entry.name}  {entry.size / 1e6:.0f} MB  {entry.path}")
    if not found:
        print(f"nothing made in {cache.root()}", file=sys.stderr)
    return 0


def _paths(pair: Pair) -> dict[str, str]:
    return {"target": str(pair.target), "draft": str(pair.draft)}
