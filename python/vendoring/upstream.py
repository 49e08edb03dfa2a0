"""`export --upstream DIR`: per purpose one mail that `git am` takes on a clean upstream checkout.

A mail holds the patch, the own modules it calls (moved as `patches/places.toml` says), its test in
upstream's layout (files under `test/upstream/SLUG/` go to `test/`), and a message made of the
header's sections.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from .errors import VendoringError
from .gitrepo import GitRepo
from .layout import OWN_PACKAGE, Layout
from .mail import Mail, lacking, mail_text, unsent_because
from .ownuse import outside_imports, own_files
from .pin import Pin, read_pin
from .places import PREFIX, Places, known_modules, read_places
from .series import Patch, decode, encode, read_series
from .stack import scratch
from .wheel_cache import resolve_any

_Files = dict[str, bytes]
"""Contents by path in upstream's layout."""


@dataclass(frozen=True)
class _Draft:
    """A mail's change: the patch and the files it brings, our modules still in our package."""

    patch: Patch
    brought: _Files
    depends: tuple[str, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for drafts that make the same change."""
        return self.patch.text, self.depends, tuple(self.brought.items())


@dataclass(frozen=True)
class Known:
    """What an export found. The stacked one of the same checkout need not ask again for those mails
    that are the same in it.
    """

    called: dict[tuple[str, ...], list[Path]] = field(default_factory=dict)
    diffs: dict[tuple[object, ...], str] = field(default_factory=dict)


def export_upstream(
    layout: Layout, folder: Path, stacked: bool = False, known: Known | None = None
) -> list[Mail]:
    """Writes the mails to `folder`, tries each on clean upstream files, and tells about every
    patch.

    Each mail stands by itself on top of those its `Depends` names. Two mails may bring the same own
    module, so they cannot both be applied; with `stacked` the earlier one brings it and the later
    one depends on that. `known` is filled, and used where it holds a mail already.
    """
    known = known or Known()
    pin = read_pin(layout.pin)
    patches = read_series(layout)
    _, wheel = resolve_any(pin)
    folder.mkdir(parents=True, exist_ok=True)
    move = _Move(read_places(layout), known_modules(layout.own))
    drafts: dict[str, _Draft] = {}
    mails: list[Mail] = []
    owner: dict[str, str] = {}
    for patch in patches:
        reason = unsent_because(patch.header)
        if reason:
            mails.append(Mail(patch.slug, skipped=reason))
            continue
        draft = _draft(layout, pin, wheel, patch, owner if stacked else {}, drafts, known)
        drafts[patch.slug] = draft
        owner |= {name: patch.slug for name in draft.brought}
        after = tuple(_closure(draft.depends, drafts))
        key = tuple(drafts[slug].key for slug in (*after, patch.slug))
        diff = known.diffs.get(key) or _diff(pin, wheel, draft, drafts, move)
        name = f"{patch.slug}.patch"
        (folder / name).write_bytes(encode(mail_text(patch.header, draft.depends, diff)))
        if key not in known.diffs:
            _try_mail(pin, wheel, folder, draft, drafts)
            known.diffs[key] = diff
        brought = {move.places.path(name) for name in draft.brought} - {""}
        files = tuple(sorted({f"{PREFIX}/{path}" for path in patch.paths} | brought))
        lacks = lacking(patch.header, draft.brought)
        mails.append(Mail(patch.slug, name, draft.depends, after, files, lacks=lacks))
    return mails


def _draft(
    layout: Layout,
    pin: Pin,
    wheel: Path,
    patch: Patch,
    owner: dict[str, str],
    drafts: dict[str, _Draft],
    known: Known,
) -> _Draft:
    declared = [name for name in patch.header.depends if name in drafts]
    missing = [name for name in patch.header.depends if name not in drafts]
    if missing:
        raise VendoringError(
            f"patch {patch.slug} depends on one that is not sent upstream",
            key="Depends",
            value=", ".join(missing),
        )
    below = [drafts[slug].patch for slug in _closure(declared, drafts)]
    asked = tuple(one.text for one in (*below, patch))
    if asked not in known.called:
        known.called[asked] = _called_modules(layout, pin, wheel, patch, below)
    files = known.called[asked]
    brought = {f"{PREFIX}/{OWN_PACKAGE}/{p.relative_to(layout.own)}": p.read_bytes() for p in files}
    tests = layout.root / "test" / "upstream" / patch.slug
    for path in sorted(tests.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            brought[f"test/{path.relative_to(tests)}"] = path.read_bytes()
    depends = [*declared, *(owner[name] for name in brought if name in owner)]
    provided = set(owner) | {n for slug in _closure(declared, drafts) for n in drafts[slug].brought}
    kept = {name: data for name, data in brought.items() if name not in provided}
    return _Draft(patch, kept, tuple(dict.fromkeys(depends)))


def _called_modules(
    layout: Layout, pin: Pin, wheel: Path, patch: Patch, below: list[Patch]
) -> list[Path]:
    """Own files that the patched files import and the unpatched ones do not."""
    with scratch(pin, wheel, [patch, *below], base=False) as repo:
        for one in below:
            _apply(repo, one, "")
        before = _python_sources(repo, patch)
        _apply(repo, patch, "")
        after = _python_sources(repo, patch)
    known = set(own_files(before, layout.own))
    files = [path for path in own_files(after, layout.own) if path not in known or below]
    for path in files:
        outside = outside_imports(path.read_bytes())
        if outside:
            raise VendoringError(
                f"patch {patch.slug} calls a module that needs a package upstream does not have",
                file=layout.shown(path),
                value=", ".join(sorted(outside)),
                remedy="move what it needs into spec_hardening, or mark the patch not-needed",
            )
    return files


def _python_sources(repo: GitRepo, patch: Patch) -> list[bytes]:
    paths = (repo.work_tree / name for name in patch.paths if name.endswith(".py"))
    return [path.read_bytes() for path in paths if path.is_file()]


def _apply(repo: GitRepo, patch: Patch, prefix: str) -> None:
    """Changes the files; nothing is committed, nor is there anything to compare with."""
    where = (f"--directory={prefix}",) if prefix else ()
    done = repo.attempt("apply", "--whitespace=nowarn", *where, "-", feed=patch.diff)
    if done.returncode != 0:
        raise VendoringError(
            f"patch {patch.slug} does not apply to upstream without the patches before it",
            file=f"patches/{patch.slug}.patch",
            value=decode(done.stderr).strip().split("\n")[0],
            remedy="name the patches it needs in its header: `Depends: SLUG, SLUG`",
        )


def _closure(slugs: list[str] | tuple[str, ...], drafts: dict[str, _Draft]) -> list[str]:
    """The named drafts and all they depend on, in series order."""
    needed: set[str] = set()
    waiting = list(slugs)
    while waiting:
        slug = waiting.pop()
        if slug not in needed:
            needed.add(slug)
            waiting += drafts[slug].depends
    return [slug for slug in drafts if slug in needed]


@dataclass(frozen=True)
class _Move:
    """Takes files from our layout to upstream's."""

    places: Places
    known: frozenset[str]

    def __call__(self, files: _Files) -> _Files:
        moved: _Files = {}
        for name, data in files.items():
            target = self.places.path(name)
            if target:
                if target in moved:
                    raise VendoringError(
                        "two files get the same place",
                        file="patches/places.toml",
                        value=target,
                    )
                moved[target] = self.places.rewritten(name, data, self.known)
        return moved


def _diff(pin: Pin, wheel: Path, draft: _Draft, drafts: dict[str, _Draft], move: _Move) -> str:
    """The change between two states of upstream's files: with what it depends on, and with it.

    The patches are applied as they are here; what they give is moved, so that a patch to a line of
    an earlier one still finds it.
    """
    below = [drafts[slug] for slug in _closure(draft.depends, drafts)]
    patches = [draft.patch, *(one.patch for one in below)]
    with scratch(pin, wheel, patches, PREFIX, base=False) as repo:
        for one in below:
            _put(repo, one)
        before = _contents(repo)
        _put(repo, draft)
        after = _contents(repo)
        header = draft.patch.header
        for files in (before, after):
            _replace(repo, move(files))
            # The exclusion of our own package is for the vendored tree; upstream would track it.
            repo.run("add", "--all", "--force")
            repo.commit(header.message(), header.author_parts, header.date.isoformat())
        return repo.diff("HEAD")


def _put(repo: GitRepo, draft: _Draft) -> None:
    _apply(repo, draft.patch, PREFIX)
    _write(repo, draft.brought)


def _contents(repo: GitRepo) -> _Files:
    paths = (path for path in repo.work_tree.rglob("*") if path.is_file())
    return {path.relative_to(repo.work_tree).as_posix(): path.read_bytes() for path in paths}


def _replace(repo: GitRepo, files: _Files) -> None:
    for name in set(_contents(repo)) - set(files):
        (repo.work_tree / name).unlink()
    _write(repo, files)


def _write(repo: GitRepo, files: _Files) -> None:
    for name, data in files.items():
        path = repo.work_tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _try_mail(
    pin: Pin, wheel: Path, folder: Path, draft: _Draft, drafts: dict[str, _Draft]
) -> None:
    """Takes the mails it depends on and then this one into clean upstream files, as a maintainer
    would.
    """
    slugs = [*_closure(draft.depends, drafts), draft.patch.slug]
    with scratch(pin, wheel, [drafts[slug].patch for slug in slugs], PREFIX) as repo:
        (repo.git_dir / "info" / "exclude").unlink()
        for slug in slugs:
            done = repo.attempt("am", "--quiet", str((folder / f"{slug}.patch").resolve()))
            if done.returncode != 0:
                raise VendoringError(
                    f"the mail of {slug} does not apply to clean upstream files",
                    file=str(folder / f"{slug}.patch"),
                    value=decode(done.stderr).strip(),
                )


def prepare(folder: Path) -> None:
    """Empties the folder of earlier mails; refuses one that holds anything else."""
    if folder.exists() and any(path.suffix != ".patch" for path in folder.iterdir()):
        raise VendoringError(
            "the folder for the mails holds other files", file=str(folder), remedy="name a new one"
        )
    shutil.rmtree(folder, ignore_errors=True)
