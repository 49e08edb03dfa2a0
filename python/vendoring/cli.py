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
from typing import Any, NamedTuple

from .errors import VendoringError
from .layout import Layout, checkout
from .talk import say


class Outcome(NamedTuple):
    """What a command gives: data for `--json`, text for people, and whether all is well."""

    data: Any
    text: str
    fine: bool = True


Command = Callable[[Layout, argparse.Namespace], Outcome]


def main(arguments: list[str]) -> int:
    """Runs one command and gives the exit status."""
    if arguments[:1] == ["git"]:
        return _git(checkout(), arguments[1:])
    options = _parser().parse_args(arguments)
    command: Command = options.command
    try:
        outcome = command(checkout(), options)
    except VendoringError as fault:
        say(f"error: {fault}")
        if options.json:
            print(json.dumps({"error": fault.as_dict()}, indent=1))
        return 1
    except KeyboardInterrupt:
        say("interrupted; run the command again to go on")
        return 130
    print(json.dumps(outcome.data, indent=1) if options.json else outcome.text)
    return 0 if outcome.fine else 1


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


def _status(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .report import status, status_text

    data = status(layout)
    return Outcome(data, status_text(data))


def _apply(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .state import Condition
    from .tree import apply

    found = apply(layout, discard=options.discard, keep_edits=options.keep_edits)
    kept = found.condition is Condition.EDITED and not options.discard
    done = found.condition is not Condition.CURRENT and not kept
    text = "the tree was made" if done else "nothing to do: the tree is current"
    return Outcome({"found": found.condition.value, "made": done}, text)


def _new(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .author import new_patch

    header = new_patch(layout, options.slug, _header(layout, options), options.paths)
    return _headed(header.slug, header.message())


def _amend(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .author import amend_patch

    header = amend_patch(layout, options.slug, _header(layout, options), options.paths)
    return _headed(header.slug, header.message())


def _headed(slug: str, message: str) -> Outcome:
    return Outcome(
        {"slug": slug, "message": message}, f"{message}\nnow: python -m vendoring export"
    )


def _header(layout: Layout, options: argparse.Namespace) -> Any:
    """Header from `--header FILE` and the single options; None where none was given."""
    from .author import people_author
    from .header import KNOWN, Header, parse_message

    author = options.author or people_author(layout)
    header = Header("", author, "", ())
    if options.header:
        text = (
            sys.stdin.read()
            if options.header == "-"
            else Path(options.header).read_text(encoding="utf-8")
        )
        header = parse_message(text, author)
    fields = list(header.fields)
    for key in KNOWN[1:]:  # all but Slug, which is an argument of its own
        values = getattr(options, key.lower().replace("-", "_"))
        if values:
            values = [values] if isinstance(values, str) else values
            fields = [pair for pair in fields if pair[0] != key] + [
                (key, value) for value in values
            ]
    whole = Header(
        options.subject or header.subject, author, options.description or header.body, tuple(fields)
    )
    return whole if whole.subject or whole.body or whole.fields else None


def _export(layout: Layout, options: argparse.Namespace) -> Outcome:
    if options.upstream:
        return _export_upstream(layout, options)
    from .export import export

    written = export(layout)
    lines = [f"wrote {name}" for name in written.changed] + [
        f"removed {name}" for name in written.removed
    ]
    data = {
        "changed": list(written.changed),
        "removed": list(written.removed),
        "patches": [patch.slug for patch in written.patches],
    }
    return Outcome(data, "\n".join(lines) or "patches/ holds this already")


def _refresh(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .refresh import refresh

    done = refresh(layout)
    lines = [f"moved {slug}" for slug in done.moved]
    lines += [f"moved {slug}; its context had changed: read it again" for slug in done.loose]
    return Outcome(done._asdict(), "\n".join(lines) or "every patch applies exactly already")


def _export_upstream(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .upstream import export_upstream, mails_data, mails_text, prepare

    prepare(options.upstream)
    mails = export_upstream(layout, options.upstream, options.stacked)
    fine = not any(mail.lacks for mail in mails)
    return Outcome(mails_data(mails), mails_text(mails), fine)


def _mutation(layout: Layout, options: argparse.Namespace) -> Outcome:
    from dataclasses import asdict

    from .mutation import mutate
    from .mutation_record import table_text, write_record
    from .series import read_series

    patches = read_series(layout)
    mutants = []
    arguments = tuple(options.pytest_arg)
    for one in mutate(layout, options.slugs, options.python, options.timeout, arguments):
        mutants.append(one)
        if options.output:  # after each, so that what is done survives an interrupt
            write_record([one], patches, options.output)
    fine = all(mutant.verdict == "killed" for mutant in mutants)
    ran = tuple(patch for patch in patches if patch.slug in {one.slug for one in mutants})
    return Outcome([asdict(mutant) for mutant in mutants], table_text(mutants, ran), fine)


def _check(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .gates import check, gates_data, gates_text

    gates = check(layout, options.python_tag)
    return Outcome(gates_data(gates), gates_text(gates), all(gate.passed for gate in gates))


def _overlay(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .overlay import write_overlay

    done = write_overlay(layout, options.folder, options.python_tag, options.with_edits)
    lines = [*done.files, *(f"delete over there: {name}" for name in done.delete)]
    return Outcome(done._asdict(), "\n".join(lines))


def _pack(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .pack import TAG, write_pack

    done = write_pack(layout, options.file, options.python_tag or TAG, options.with_edits)
    text = f"{done.file}: {done.files} files, {done.size / 2**20:.1f} MiB, sha256 {done.sha256}"
    return Outcome(done._asdict(), text)


def _wheel(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .distribution import write_wheel
    from .interpreter import any_wheel
    from .pin import read_pin
    from .sbom import write_sbom
    from .series import read_series
    from .wheel_cache import resolve, sha256_of

    pin = read_pin(layout.pin)
    wheel = any_wheel(pin, options.python_tag)
    patches = read_series(layout)
    path, about = write_wheel(layout, pin, wheel, resolve(pin, wheel), patches, options.folder)
    bill = write_sbom(path, pin, wheel, patches, about)
    data = {"wheel": str(path), "sha256": sha256_of(path), "sbom": str(bill)}
    return Outcome(data, f"{path}\n{bill}")


def _drop(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .retired import drop

    written = drop(layout, options.slug, options.why, options.upstream)
    data = {"changed": list(written.changed), "removed": list(written.removed)}
    return Outcome(data, f"dropped {options.slug}\nnow: python -m vendoring apply")


def _bump(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .bump import forecast, forecast_data, forecast_text

    result = forecast(layout, options.version, options.wheel)
    return Outcome(forecast_data(result), forecast_text(result), result.fine)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vendoring",
        description="The pinned SGLang with patches/ on top, in python/sglang.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument("--json", action="store_true", help="print data as JSON")
        one.set_defaults(command=command)
        return one

    add("status", _status, "show pin, patches, their sizes, and the state of the tree")
    one = add("apply", _apply, "make the tree, or bring it up to date")
    one.add_argument(
        "--discard", action="store_true", help="throw local edits and unexported commits away"
    )
    one.add_argument("--keep-edits", action="store_true", help="accept a tree with local edits")
    commands.add_parser("git", help="run git on the vendored tree, e.g. `git log`, `git rebase -i`")
    _header_options(add("new", _new, "commit the edits in the tree as a new patch"))
    _header_options(add("amend", _amend, "fold the edits into a patch, or change its header"))
    add("refresh", _refresh, "re-anchor patches whose neighbours moved, as after a merge")
    one = add("export", _export, "write the commits to patches/, or mails for upstream")
    one.add_argument("--upstream", type=Path, metavar="DIR", help="write mails for upstream there")
    one.add_argument("--stacked", action="store_true", help="mails that apply one after another")
    one = add("check", _check, "run every gate on the patches")
    _tag_option(one)
    one = add("overlay", _overlay, "write patched files, own package and stamp to a folder")
    one.add_argument("folder", type=Path, metavar="DIR")
    one.add_argument("--with-edits", action="store_true", help="take the tree as it is now")
    _tag_option(one)
    one = add("pack", _pack, "write overlay, tests and draft to one file for a GPU machine")
    one.add_argument("file", type=Path, metavar="FILE.tar.gz")
    one.add_argument("--with-edits", action="store_true", help="take the tree as it is now")
    _tag_option(one)
    one = add("wheel", _wheel, "write the wheel of the patched tree and its bill of materials")
    one.add_argument("folder", type=Path, metavar="DIR")
    _tag_option(one)
    one = add("drop", _drop, "take a patch out and note it in patches/retired.toml")
    one.add_argument("slug")
    one.add_argument("--why", required=True, help="why it is not needed any more")
    one.add_argument("--upstream", default="", help="upstream commit or version that has it")
    one = add("bump", _bump, "tell how patches and own modules would fit another upstream release")
    one.add_argument("version")
    one.add_argument(
        "--wheel", type=Path, metavar="FILE", help="that release, if pip shall not run"
    )
    one = add("mutation", _mutation, "show that each patch's test fails without that patch (slow)")
    one.add_argument("slugs", nargs="*", metavar="SLUG", help="only these patches")
    one.add_argument("--python", default=sys.executable, help="interpreter that runs the tests")
    one.add_argument("--timeout", type=float, default=1800.0, help="seconds for one run of a test")
    one.add_argument(
        "--pytest-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="pass this to pytest too, e.g. --pytest-arg=--full",
    )
    one.add_argument(
        "--output", type=Path, metavar="DIR", help="keep the results in mutation.json and .md there"
    )
    return parser


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
