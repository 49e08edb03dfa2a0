"""The command line. Data goes to stdout, talk to stderr; 0 fine, 1 a finding, 2 wrong usage, 130
cut off.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from . import commands
from .commands import Outcome
from .errors import VendoringError, of_system
from .layout import Layout, checkout
from .talk import say

Command = Callable[[Layout, argparse.Namespace], Outcome]


def main(arguments: list[str], layout: Layout | None = None) -> int:
    """Runs one command, on this package's checkout if no other is named; gives the exit status."""
    layout = layout or checkout()
    if arguments[:1] == ["git"]:
        return _told(lambda: _git(layout, arguments[1:]), False)
    options = _parser().parse_args(arguments)
    command: Command = options.command

    def run() -> int:
        outcome = command(layout, options)
        _show(json.dumps(outcome.data, indent=1) if options.json else outcome.text)
        return 0 if outcome.fine else 1

    return _told(run, options.json)


def _told(work: Callable[[], int], as_json: bool) -> int:
    """Exit status of `work`; a fault it stops with is told in plain words."""
    try:
        return work()
    except VendoringError as fault:
        found = fault
    except OSError as refused:
        found = of_system(refused)
    except KeyboardInterrupt:
        say("interrupted; run the command again to go on")
        return 130
    say(f"error: {found}")
    if as_json:
        _show(json.dumps({"error": found.as_dict()}, indent=1))
    return 1


def _show(text: str) -> None:
    """Writes data to stdout. A reader that has enough of it, as `head` has, is no fault."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _drop_stdout()
    except OSError as refused:  # the disk that stdout goes to is full
        _drop_stdout()
        refused.filename = "stdout"
        raise


def _drop_stdout() -> None:
    """What is still buffered goes nowhere, or the interpreter would complain of it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _git(layout: Layout, arguments: list[str]) -> int:
    """Becomes git, so that editors, pagers and signals work as usual."""
    from .state import repo_of

    repo = repo_of(layout)
    if not repo.git_dir.is_dir():
        say("error: there is no vendored tree\n  what to do: python -m vendoring apply")
        return 1
    name, mail = repo.person(layout.root)
    identity = ["-c", f"user.name={name}", "-c", f"user.email={mail}"]
    if not Path.cwd().resolve().is_relative_to(repo.work_tree):
        identity += ["-C", str(repo.work_tree)]
    os.execvpe("git", ["git", *identity, *arguments], repo.environment())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vendoring",
        description="The pinned SGLang with patches/ on top, in python/sglang.",
    )
    parsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        one = parsers.add_parser(name, help=text, description=text)
        one.add_argument("--json", action="store_true", help="print data as JSON")
        one.set_defaults(command=command)
        return one

    add("status", commands.run_status, "show pin, patches, their sizes, and the state of the tree")
    one = add("apply", commands.run_apply, "make the tree, or bring it up to date")
    one.add_argument(
        "--discard", action="store_true", help="throw local edits and unexported commits away"
    )
    one.add_argument("--keep-edits", action="store_true", help="accept a tree with local edits")
    parsers.add_parser("git", help="run git on the vendored tree, e.g. `git log`, `git rebase -i`")
    _header_options(add("new", commands.run_new, "commit the edits in the tree as a new patch"))
    _header_options(
        add("amend", commands.run_amend, "fold the edits into a patch, or change its header")
    )
    add(
        "refresh",
        commands.run_refresh,
        "re-anchor patches whose neighbours moved, as after a merge",
    )
    one = add("export", commands.run_export, "write the commits to patches/, or mails for upstream")
    one.add_argument("--upstream", type=Path, metavar="DIR", help="write mails for upstream there")
    one.add_argument("--stacked", action="store_true", help="mails that apply one after another")
    one = add("check", commands.run_check, "run every gate on the patches")
    _tag_option(one)
    one = add(
        "overlay", commands.run_overlay, "write patched files, own package and stamp to a folder"
    )
    one.add_argument("folder", type=Path, metavar="DIR")
    one.add_argument("--with-edits", action="store_true", help="take the tree as it is now")
    _tag_option(one)
    one = add(
        "pack", commands.run_pack, "write overlay, tests and draft to one file for a GPU machine"
    )
    one.add_argument("file", type=Path, metavar="FILE.tar.gz")
    one.add_argument("--with-edits", action="store_true", help="take the tree as it is now")
    _tag_option(one)
    one = add(
        "wheel", commands.run_wheel, "write the wheel of the patched tree and its bill of materials"
    )
    one.add_argument("folder", type=Path, metavar="DIR")
    _tag_option(one)
    one = add("drop", commands.run_drop, "take a patch out and note it in patches/retired.toml")
    one.add_argument("slug")
    one.add_argument("--why", required=True, help="why it is not needed any more")
    one.add_argument("--upstream", default="", help="upstream commit or version that has it")
    one = add(
        "bump",
        commands.run_bump,
        "tell how patches and own modules would fit another upstream release",
    )
    one.add_argument("version")
    one.add_argument(
        "--wheel", type=Path, metavar="FILE", help="that release, if pip shall not run"
    )
    one = add(
        "mutation",
        commands.run_mutation,
        "show that each patch's test fails without that patch (slow)",
    )
    _run_options(one, 1800.0, "mutation")
    one.add_argument(
        "--pytest-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="pass this to pytest too, e.g. --pytest-arg=--full",
    )
    one = add("mails", commands.run_mails, "try each mail for upstream on a clean tree (slow)")
    _run_options(one, 600.0, "mails")
    return parser


def _run_options(parser: argparse.ArgumentParser, timeout_s: float, name: str) -> None:
    parser.add_argument("slugs", nargs="*", metavar="SLUG", help="only these patches")
    parser.add_argument(
        "--due", action="store_true", help="only rows that are missing, stale or bad in --output"
    )
    parser.add_argument("--python", default=sys.executable, help="interpreter that runs the tests")
    parser.add_argument(
        "--timeout", type=float, default=timeout_s, help="seconds for one run of a test"
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help=f"keep the results in {name}.json and .md there"
    )


def _tag_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--python-tag", metavar="TAG", help="pinned wheel to work on, e.g. cp312")


def _header_options(parser: argparse.ArgumentParser) -> None:
    from .header import KNOWN, REPEATABLE

    parser.add_argument("slug", help="name of the patch: lower case words joined by hyphens")
    parser.add_argument("paths", nargs="*", help="only these files (relative to python/sglang)")
    parser.add_argument(
        "--header", metavar="FILE", help="file with subject, description, fields (- is stdin)"
    )
    parser.add_argument("--subject", help="the purpose in one line")
    parser.add_argument("--description", help="why, the symptom, how to see it fail")
    parser.add_argument("--author", help="`Name <mail>`; the checkout's git identity if not given")
    for key in KNOWN[1:]:
        action = "append" if key in REPEATABLE else "store"
        parser.add_argument(
            f"--{key.lower()}", action=action, metavar="TEXT", help=f"header field {key}"
        )
