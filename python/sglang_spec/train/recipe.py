"""The recipe of a draft: one TOML file from which it can be made again. Imports no torch.

Read with the reader of launch recipes, so an unknown key, a wrong type or a number out of bounds is
named with file, key, value and what to write instead, all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Any

from ..recipe.content import content_of
from ..recipe.keys import key, read_table, unknown
from ..recipe.problem import Problem, RecipeError

EMBEDDED = "embedded"  # as target.path: the target of this repository's pair


@dataclass(frozen=True, kw_only=True)
class TargetSection:
    """The target. path: a folder, or "embedded". dtype: of its states, as it will be served."""

    path: str = key(default=MISSING)
    dtype: str = key(default="bfloat16", one_of=("bfloat16", "float16", "float32"))


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """How many prompts of each kind, and which installed packages their text comes from.

    packages: "name==version", or "python==version" for the standard library; a package of another
    version is refused, since the prompts would be others. sha256: of the finished lines; left
    out before the first build. held_out: the file whose text must not occur, beside the recipe.
    """

    packages: tuple[str, ...] = key(default=MISSING)
    documents: int = key(default=0, least=0)
    functions: int = key(default=0, least=0)
    completions: int = key(default=0, least=0)
    topics: int = key(default=0, least=0)
    arithmetic: int = key(default=0, least=0)
    held_out: str | None = key()
    seed: int = key(default=0, least=0)
    sha256: str | None = key()


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Answers of the target to the prompts.

    engine: "torch" (a batched loop on one device) or "sglang" (a real server). rows: of a batch.
    stop_share: a batch ends when this share of its rows has. self_written: user turns that the
    target writes itself. temperatures: batch i takes number i of them, and so on round. minutes:
    no batch begins later; 0 for no limit.
    """

    engine: str = key(default="torch", one_of=("torch", "sglang"))
    rows: int = key(default=64, least=1)
    new_tokens: int = key(default=320, least=8)
    longest_prompt: int = key(default=256, least=8)
    stop_share: float = key(default=0.95, least=0.1, most=1)
    temperatures: tuple[float, ...] = key(default=(0.0,))
    self_written: int = key(default=0, least=0)
    self_tokens: int = key(default=96, least=8)
    minutes: float = key(default=0.0, least=0)
    seed: int = key(default=0, least=0)


@dataclass(frozen=True, kw_only=True)
class DraftSection:
    """The shape of the draft. layers: whose outputs it is given, in order. vocabulary: tokens that
    it can draft, 0 for all of the target's. intermediate: 0 for the target's. start: "drawn" at
    random, or with the norm and the head of the "target"."""

    layers: tuple[int, ...] = key(default=MISSING)
    vocabulary: int = key(default=0, least=0)
    heads: int = key(default=8, least=1)
    kv_heads: int = key(default=8, least=1)
    head_dim: int = key(default=64, least=2)
    intermediate: int = key(default=0, least=0)
    start: str = key(default="drawn", one_of=("drawn", "target"))


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Training, until `steps` or `minutes`, whichever is first; 0 is no limit, one is needed.

    unroll: draft steps that are unrolled, and decay: weight of each against the one before.
    batch_tokens: of the padded batch. final: last learning rate as a share of `learning_rate`.
    loop_tokens: of an answer that repeats itself, kept after the first round. evaluate_every and
    save_every are steps, 0 for only at the end. optimizer: of the matrices other than the head.
    compile: the target's layers and the loss by torch.compile, which needs a C compiler.
    """

    seeds: tuple[int, ...] = key(default=(0,))
    minutes: float = key(default=0.0, least=0)
    steps: int = key(default=0, least=0)
    unroll: int = key(default=4, least=1, most=16)
    decay: float = key(default=0.8, least=0.01, most=1)
    learning_rate: float = key(default=1e-3, least=0)
    warmup: int = key(default=50, least=0)
    final: float = key(default=0.02, least=0, most=1)
    clip: float = key(default=0.5, least=0)
    batch_tokens: int = key(default=16384, least=16)
    loop_tokens: int = key(default=64, least=0)
    evaluate_every: int = key(default=0, least=0)
    save_every: int = key(default=0, least=0)
    optimizer: str = key(default="adamw", one_of=("adamw", "muon"))
    compile: bool = key(default=False)


@dataclass(frozen=True, kw_only=True)
class Export:
    """What is written beside the weights, and how large they may be."""

    megabytes: float = key(default=40.0, least=0)
    fingerprint_prompts: int = key(default=3, least=0)


SECTIONS: dict[str, type[Any]] = {
    "target": TargetSection,
    "prompts": Prompts,
    "answers": Answers,
    "draft": DraftSection,
    "fit": Fit,
    "export": Export,
}
NEEDED = ("target", "prompts", "draft", "fit")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A read recipe; `file` is where it came from."""

    file: Path
    about: str
    target: TargetSection
    prompts: Prompts
    draft: DraftSection
    fit: Fit
    answers: Answers = Answers()
    export: Export = Export()

    def held_out(self) -> Path | None:
        """The held-out file, if there is one."""
        name = self.prompts.held_out
        return None if name is None else self.file.parent / name


def load(path: Path, changes: Iterable[str] = ()) -> Recipe:
    """The recipe of a file, with `changes` ("fit.minutes=2") laid over it.

    Raises:
        RecipeError: everything that is wrong with it.
    """
    file = str(path)
    content = content_of(path, changes, "training recipe")
    found: list[Problem] = []
    about = content.pop("about", "")
    if not isinstance(about, str):
        found.append(Problem("wrong-type", file, "about", about, "write a text"))
    sections: dict[str, Any] = {}
    for name, value in content.items():
        if name not in SECTIONS:
            found.append(unknown(file, name, value, name, ["about", *SECTIONS]))
        elif not isinstance(value, dict):
            found.append(Problem("wrong-type", file, name, value, f"write a section, [{name}]"))
        else:
            sections[name] = read_table(SECTIONS[name], value, name, file, found)
    for name in NEEDED:
        if name not in content:
            found.append(Problem("missing-key", file, name, None, f"it is needed; write [{name}]"))
    if found:
        raise RecipeError(found)
    recipe = Recipe(file=path, about=about, **sections)
    if found := list(_broken(recipe)):
        raise RecipeError(found)
    return recipe


def with_seeds(recipe: Recipe, seeds: tuple[int, ...]) -> Recipe:
    """The same recipe for other seeds."""
    return replace(recipe, fit=replace(recipe.fit, seeds=seeds))


def _broken(recipe: Recipe) -> Iterable[Problem]:
    """What is wrong between keys that are each right."""
    file, fit, draft = str(recipe.file), recipe.fit, recipe.draft
    if not fit.minutes and not fit.steps:
        yield Problem("no-end", file, "fit.minutes", 0, "write fit.minutes or fit.steps above 0")
    if not fit.seeds or len(set(fit.seeds)) != len(fit.seeds):
        yield Problem("bad-seeds", file, "fit.seeds", list(fit.seeds), "write different seeds")
    if draft.heads % draft.kv_heads:
        remedy = f"write a divisor of draft.heads = {draft.heads}"
        yield Problem("bad-heads", file, "draft.kv_heads", draft.kv_heads, remedy)
    if draft.head_dim % 2:
        yield Problem("odd", file, "draft.head_dim", draft.head_dim, "write an even number")
    if list(draft.layers) != sorted(set(draft.layers)) or not draft.layers or draft.layers[0] < 0:
        remedy = "write layers in increasing order: the target hands them over by depth"
        yield Problem("bad-layers", file, "draft.layers", list(draft.layers), remedy)
    if not recipe.answers.temperatures or min(recipe.answers.temperatures) < 0:
        value = list(recipe.answers.temperatures)
        yield Problem("bad-temperature", file, "answers.temperatures", value, "write 0 or more")
    for one in recipe.prompts.packages:
        if one.count("==") != 1:
            yield Problem("no-version", file, "prompts.packages", one, "write name==version")
