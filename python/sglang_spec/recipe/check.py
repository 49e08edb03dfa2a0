"""Everything that can be said of a launch before it is started: `examine`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..models import ModelError
from . import arguments, launch, machine, pair
from .problem import Problem, RecipeError
from .sections import Recipe

_API_KEY = re.compile(r"^api[-_]key\s*:\s*\S", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """A launch, examined. `notes` say what could not be checked here and what is decided later;
    `plan` and `contract` are None where there is nothing to say."""

    recipe: Recipe
    command: list[str]
    environment: dict[str, str]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    plan: Any
    contract: Any

    def to_json(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe.file,
            "accepted": not self.problems,
            "problems": [one.to_json() for one in self.problems],
            "notes": list(self.notes),
            "command": self.command,
            "environment": self.environment,
            "comm": None if self.plan is None else self.plan.to_dict(),
            "contract": None if self.contract is None else self.contract.to_json(),
        }


def examine(recipe: Recipe, facts_file: Path | None = None, dry: bool = True) -> Outcome:
    """Check a recipe against a machine and the models at hand, and make its command.

    Args:
        facts_file: a record of `doctor comm --save` in place of this machine.
        dry: nothing will be started, so what only the real host has (secrets) may be missing.

    Raises:
        RecipeError: a file that the recipe needs to be understood cannot be used.
    """
    problems: list[Problem] = []
    notes: list[str] = []
    try:
        recipe = arguments.resolved(recipe)
    except ModelError as error:
        raise RecipeError(
            [Problem("model-missing", recipe.file, "model.path", recipe.model.path, str(error))]
        ) from error
    plan = _machine(recipe, facts_file, problems)
    report = pair.contract(recipe)
    if report is None and recipe.draft is not None:
        notes.append(
            "contract not checked: target and draft are not both here; the server checks it"
        )
    if report is not None and recipe.capture.contract != "report":
        problems += [
            Problem(one.code, one.file, one.key, one.value, one.remedy) for one in report.problems
        ]
    problems += pair.differs(recipe, report)
    problems += _secrets(recipe, dry, notes)
    if not dry:
        problems += launch.impossible(recipe)
    return Outcome(
        recipe=recipe,
        command=arguments.command(recipe),
        environment=arguments.environment(recipe),
        problems=tuple(problems),
        notes=tuple(notes),
        plan=plan,
        contract=report,
    )


def _machine(recipe: Recipe, facts_file: Path | None, problems: list[Problem]) -> Any:
    """The communication plan, with what does not fit the machine added to `problems`."""
    key, value = "--facts", str(facts_file)
    try:
        facts = machine.load_facts(facts_file)
        problems += machine.unfit(recipe, facts)
        key, value = "comm.plan", str(recipe.comm.plan)
        plan = machine.comm_plan(recipe, facts, replayed=facts_file is not None)
    except ValueError as error:  # FactsError, MeasuredError
        raise RecipeError([Problem("unusable", recipe.file, key, value, str(error))]) from error
    for one in plan.refusals if plan is not None else ():
        problems.append(Problem("comm", recipe.file, "comm", one.line, "see doctor comm"))
    return plan


def _secrets(recipe: Recipe, dry: bool, notes: list[str]) -> Iterator[Problem]:
    """What is wrong with the file of secrets; where only a dry run lacks it, a note."""
    name = recipe.listen.secrets
    if name is None:
        return
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
        mode = path.stat().st_mode & 0o077
    except OSError as error:
        if dry:
            notes.append(f"secrets not checked: {path}: {error.strerror}")
            return
        remedy = f"{error.strerror}; write `api-key: …` into it, mode 0600, owned by the service"
        yield Problem("secrets", recipe.file, "listen.secrets", name, remedy)
        return
    except UnicodeDecodeError:
        remedy = "it is no text in UTF-8; write `api-key: …` into it"
        yield Problem("secrets", recipe.file, "listen.secrets", name, remedy)
        return
    remedy = ""
    if not _API_KEY.search(text):
        remedy = "it has no line `api-key: …`"
    elif mode & 0o007:
        remedy = "everybody can read it; chmod o= does away with that"
    if remedy:
        yield Problem("secrets", recipe.file, "listen.secrets", name, remedy)
