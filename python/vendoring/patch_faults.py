"""Faults of patches as they are written, seen without applying any of them; one text each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from . import mail_record, mutation_record
from .errors import VendoringError
from .gitrepo import listed
from .header_faults import header_faults
from .layout import OWN_PACKAGE, STAMP_NAME, Layout
from .mail import unsent_because
from .metadata import kernel_by_version, requirements, upstream_requirements
from .pin import Pin
from .series import Patch
from .testnode import node_fault
from .unpack import read_metadata

LINES_EACH = 60  # added lines that one patch may have
LINES_MEDIAN = 20  # and that half of all patches may have


def incomplete_headers(patches: tuple[Patch, ...]) -> Iterator[str]:
    earlier: set[str] = set()
    for patch in patches:
        for fault in header_faults(patch.header):
            yield f"{patch.slug}: {fault}"
        if patch.header.slug and patch.header.slug != patch.slug:
            yield f"{patch.slug}: Slug says {patch.header.slug}"
        for name in patch.header.depends:
            if name not in earlier:
                yield f"{patch.slug}: Depends names {name}, which is not before it in the series"
        earlier.add(patch.slug)


def missing_tests(layout: Layout, patches: tuple[Patch, ...]) -> Iterator[str]:
    for patch in patches:
        for node in patch.header.tests:
            fault = node_fault(layout.root, node)
            if fault:
                yield f"{patch.slug}: {fault}"


def large_patches(patches: tuple[Patch, ...]) -> Iterator[str]:
    for patch in patches:
        if patch.added > LINES_EACH:
            yield f"{patch.slug} adds {patch.added} lines, more than {LINES_EACH}"
    middle = median([patch.added for patch in patches] or [0])
    if middle > LINES_MEDIAN:
        yield f"the median of added lines is {middle:g}, more than {LINES_MEDIAN}"


def bad_results(layout: Layout, patches: tuple[Patch, ...]) -> Iterator[str]:
    """Kept results that say that a patch has no test that needs it. A missing one says nothing, nor
    does one whose test was skipped where it was run, as those for a GPU are.
    """
    slugs = {patch.slug for patch in patches}
    for mutant in mutation_record.read_record(layout.patches):
        if mutant.slug in slugs and mutant.verdict != "killed" and mutant.with_patch != "skipped":
            yield f"patches/mutation.md: {mutant.slug} is {mutant.verdict}"
    for trial in mail_record.read_record(layout.patches):
        if trial.slug in slugs and trial.verdict != "proven" and trial.alone != "skipped":
            yield f"patches/mails.md: {trial.slug} is {trial.verdict}"


def stale_results(layout: Layout, patches: tuple[Patch, ...]) -> Iterator[str]:
    """Kept results that are missing or of another state of the patch. No fault of the patches, as
    making them takes long, so `check` only warns. A mail's age is told by `mails --due`, which
    makes the mails anew.
    """
    due = mutation_record.due(patches, layout.patches)
    if due:
        yield (
            f"patches/mutation.md has no row of today's patch for {', '.join(due)}: `make mutation`"
        )
    known = {trial.slug for trial in mail_record.read_record(layout.patches)}
    sent = [patch.slug for patch in patches if not unsent_because(patch.header)]
    missing = [slug for slug in sent if slug not in known]
    if missing:
        yield f"patches/mails.md has no row for {', '.join(missing)}: `make mails`"


def trailing_space(patches: tuple[Patch, ...]) -> Iterator[str]:
    for patch in patches:
        for change in patch.files:
            for hunk in change.hunks:
                for line in hunk.added:
                    if line.removesuffix("\n") != line.rstrip():
                        yield f"{patch.slug}: {change.path}, hunk {hunk.number}: {line.rstrip()!r}"


def misplaced(layout: Layout, patches: tuple[Patch, ...]) -> Iterator[str]:
    for patch in patches:
        for path in patch.paths:
            if path == STAMP_NAME or path.startswith(OWN_PACKAGE + "/"):
                yield f"{patch.slug} changes {path}, which is not upstream's"
    if not (layout.root / ".git").exists():
        return
    for file in listed(layout.root, "python/sglang", "python/.vendor"):
        if layout.own not in file.parents:
            yield f"{layout.shown(file)} is committed to the project"


def stale_requirements(pin: Pin, file: Path) -> Iterator[str]:
    upstream = upstream_requirements(read_metadata(file, "METADATA"))
    for device in pin.devices:
        try:
            requirements(upstream, device, kernel_by_version(device))
        except VendoringError as fault:
            yield " ".join(str(fault).split())
