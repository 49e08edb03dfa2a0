"""What each command does: arguments in, data and text out. Imports come late, so that a command
loads only what it needs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

from .errors import VendoringError, text_of
from .layout import Layout


class Outcome(NamedTuple):
    """What a command gives: data for `--json`, text for people, and whether all is well."""

    data: Any
    text: str
    fine: bool = True


def run_status(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .report import status, status_text

    data = status(layout)
    return Outcome(data, status_text(data))


def run_apply(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .state import Condition
    from .tree import apply

    found = apply(layout, discard=options.discard, keep_edits=options.keep_edits)
    kept = found.condition is Condition.EDITED and not options.discard
    done = found.condition is not Condition.CURRENT and not kept
    text = "the tree was made" if done else "nothing to do: the tree is current"
    return Outcome({"found": found.condition.value, "made": done}, text)


def run_new(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .author import new_patch

    header = new_patch(layout, options.slug, _header(layout, options), options.paths)
    return _headed(header.slug, header.message())


def run_amend(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .author import amend_patch

    header = amend_patch(layout, options.slug, _header(layout, options), options.paths)
    return _headed(header.slug, header.message())


def _headed(slug: str, message: str) -> Outcome:
    return Outcome(
        {"slug": slug, "message": message}, f"{message}\nnow: python -m vendoring export"
    )


def _header(layout: Layout, options: argparse.Namespace) -> Any:
    """Header from `--header FILE` and the single options; None where none was given. Who made the
    patch is empty without `--author`, a field given as an empty text is taken out.
    """
    from .header import KNOWN, Header, parse_message

    author = options.author or ""
    header = Header("", author, "", ())
    if options.header:
        text = sys.stdin.read() if options.header == "-" else text_of(Path(options.header))
        header = parse_message(text, author)
    fields = list(header.fields)
    for key in KNOWN[1:]:  # all but Slug, which is an argument of its own
        values = getattr(options, key.lower().replace("-", "_"))
        if values is not None:
            values = [values] if isinstance(values, str) else values
            fields = [pair for pair in fields if pair[0] != key] + [
                (key, value) for value in values
            ]
    whole = Header(
        options.subject or header.subject, author, options.description or header.body, tuple(fields)
    )
    given = whole.subject or whole.body or whole.fields or whole.author
    return whole if given else None


def run_export(layout: Layout, options: argparse.Namespace) -> Outcome:
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


def run_refresh(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .refresh import refresh

    done = refresh(layout)
    lines = [f"moved {slug}" for slug in done.moved]
    lines += [f"moved {slug}; its context had changed: read it again" for slug in done.loose]
    return Outcome(done._asdict(), "\n".join(lines) or "every patch applies exactly already")


def _export_upstream(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .mail import mails_data, mails_text
    from .upstream import export_upstream, prepare

    prepare(options.upstream)
    mails = export_upstream(layout, options.upstream, options.stacked)
    fine = not any(mail.lacks for mail in mails)
    return Outcome(mails_data(mails), mails_text(mails), fine)


def run_mutation(layout: Layout, options: argparse.Namespace) -> Outcome:
    from dataclasses import asdict

    from .mutation import mutate
    from .mutation_record import due, table_text, write_record
    from .series import read_series

    patches = read_series(layout)
    slugs = options.slugs
    if options.due:
        slugs = [
            slug for slug in due(patches, _record_folder(options)) if slug in slugs or not slugs
        ]
        if not slugs:
            return Outcome([], "every row is of today's patches and good")
    mutants = []
    arguments = tuple(options.pytest_arg)
    for one in mutate(layout, slugs, options.python, options.timeout, arguments):
        mutants.append(one)
        if options.output:  # after each, so that what is done survives an interrupt
            write_record([one], patches, options.output)
    fine = all(mutant.verdict == "killed" for mutant in mutants)
    text = table_text(mutants, patches, frozenset(one.slug for one in mutants))
    return Outcome([asdict(mutant) for mutant in mutants], text, fine)


def run_mails(layout: Layout, options: argparse.Namespace) -> Outcome:
    from dataclasses import asdict

    from .mail_record import read_record, table_text, write_record
    from .mail_trial import try_mails

    kept = read_record(_record_folder(options)) if options.due else []
    good = {row.slug: row.fingerprint for row in kept if row.verdict == "proven"}
    trials = []
    text = "every row is of today's mails and good"
    for one in try_mails(layout, options.slugs, options.python, options.timeout, good):
        trials.append(one.trial)
        if options.output:  # after each, so that what is done survives an interrupt
            write_record([one.trial], one.mails, one.folder, options.output)
        ran = [mail for mail in one.mails if mail.slug in {trial.slug for trial in trials}]
        text = table_text(trials, ran, one.folder)
    fine = all(trial.verdict == "proven" for trial in trials)
    return Outcome([asdict(trial) for trial in trials], text, fine)


def _record_folder(options: argparse.Namespace) -> Path:
    folder: Path | None = options.output
    if folder is None:
        raise VendoringError("--due needs the folder of the kept table", remedy="--output DIR")
    return folder


def run_check(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .gates import check, gates_data, gates_text, warnings
    from .talk import say

    gates = check(layout, options.python_tag)
    for words in warnings(layout):
        say(f"warning: {words}")
    return Outcome(gates_data(gates), gates_text(gates), all(gate.passed for gate in gates))


def run_overlay(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .overlay import write_overlay

    done = write_overlay(layout, options.folder, options.python_tag, options.with_edits)
    lines = [*done.files, *(f"delete over there: {name}" for name in done.delete)]
    return Outcome(done._asdict(), "\n".join(lines))


def run_pack(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .pack import TAG, write_pack

    done = write_pack(layout, options.file, options.python_tag or TAG, options.with_edits)
    text = f"{done.file}: {done.files} files, {done.size / 2**20:.1f} MiB, sha256 {done.sha256}"
    return Outcome(done._asdict(), text)


def run_wheel(layout: Layout, options: argparse.Namespace) -> Outcome:
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


def run_drop(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .retired import drop

    written = drop(layout, options.slug, options.why, options.upstream)
    data = {"changed": list(written.changed), "removed": list(written.removed)}
    return Outcome(data, f"dropped {options.slug}\nnow: python -m vendoring apply")


def run_bump(layout: Layout, options: argparse.Namespace) -> Outcome:
    from .bump import forecast, forecast_data, forecast_text

    result = forecast(layout, options.version, options.wheel)
    return Outcome(forecast_data(result), forecast_text(result), result.fine)
