"""The stages of a recipe, in order, each of which goes on where it was stopped.

OUTPUT/prompts.jsonl.xz, prompts.json
OUTPUT/answers/…
OUTPUT/seed-0/checkpoint.safetensors, log.jsonl, evaluation.json
OUTPUT/seed-0/draft/…
OUTPUT/summary.json, curves.png, README.md
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..models.cache import file_sha256
from ..models.smollm2 import prepare as embedded_target
from . import answers, card, checkpoint, curves, heldout, prompts
from .chat import Chat
from .recipe import EMBEDDED, Recipe
from .stop import Stop
from .summary import summarize

STAGES = ("prompts", "answers", "fit", "export", "evaluate")
Say = Callable[[str], None]


class Unfinished(Exception):
    """A stage was stopped; the text says why. What it has made is kept."""


class Work:
    """One recipe and its output folder.

    Args:
        data: a folder of `capture standardize` to train on in place of answers.
    """

    def __init__(
        self, recipe: Recipe, output: Path, stop: Stop, say: Say, data: Path | None = None
    ) -> None:
        self.recipe, self.output, self.stop, self.say, self.data = recipe, output, stop, say, data
        path = recipe.target.path
        self.target = embedded_target() if path == EMBEDDED else Path(path)
        self._loaded: dict[str, Any] = {}

    def run(self, stages: tuple[str, ...]) -> dict[str, Any]:
        """Run stages; what each of them found, by name.

        Raises:
            Unfinished: the stop came first.
        """
        steps: dict[str, Callable[[], Any]] = {
            "prompts": self.prompts,
            "answers": self.answers,
            "fit": self.fit,
            "export": self.export,
            "evaluate": self.evaluate,
        }
        return {stage: steps[stage]() for stage in stages}

    def prompts(self) -> dict[str, Any]:
        """Build the prompts, or check those that are there."""
        path, about = self.output / "prompts.jsonl.xz", self.output / "prompts.json"
        wanted = self.recipe.prompts
        if path.exists() and about.exists():
            prompts.read(path, wanted.sha256)
        else:
            self.say("prompts: reading packages, a minute or two")
            built = prompts.build(wanted, path, self._held_out_texts())
            about.write_text(json.dumps(built.to_json(), indent=1) + "\n")
        return dict(json.loads(about.read_text()))

    def answers(self) -> dict[str, Any]:
        """Let the target answer."""
        folder = self.output / "answers"
        done = folder / answers.SUMMARY
        if not (done.exists() and json.loads(done.read_text())["complete"]):
            given = prompts.read(self.output / "prompts.jsonl.xz", self.recipe.prompts.sha256)
            self.say(f"answers: {len(given)} prompts and {self.recipe.answers.self_written} own")
            made = answers.make(self.recipe, self.target, given, folder, self.stop, self.say)
            if not made.complete:
                raise Unfinished(self.stop.reason)
        told = json.loads(done.read_text())
        return {name: told[name] for name in ("answers", "tokens", "seconds")}

    def fit(self) -> dict[str, Any]:
        """Train every seed of the recipe."""
        from .fit import Watch, fit

        runs: dict[str, Any] = {}
        for seed in self.recipe.fit.seeds:
            folder = self.seed(seed)
            held = checkpoint.read(folder)
            state = held[0] if held else None
            if state is None or not state.done:
                self.say(f"fit: seed {seed} in {folder}")
                rows, prepared = self._held_out()
                watch = Watch(rows, prepared) if rows else None
                source, ends = self._source(), self._ends()
                state = fit(self.recipe, seed, source, ends, folder, self.stop, self.say, watch)
                if not state.done:
                    raise Unfinished(self.stop.reason)
                (folder / "device.txt").write_text(self._device_name() + "\n")
            runs[str(seed)] = {k: v for k, v in asdict(state).items() if k != "settings"}
        return runs

    def export(self) -> dict[str, Any]:
        """Write the draft of every seed."""
        from .export import WEIGHTS, export, mark

        found: dict[str, Any] = {}
        for seed in self.recipe.fit.seeds:
            folder = self.seed(seed)
            draft = export(self.recipe, folder, self.target, self._ends(), folder / "draft")
            rows = self._rows()[:: max(1, len(self._rows()) // 3)]
            count = self.recipe.export.fingerprint_prompts
            if count and rows and self.data is None:
                marked = [row.tokens[:64] for row in rows[:count]]
                layers = self.recipe.draft.layers
                mark(self._target(), draft, layers, marked, folder / "dumps")
            found[str(seed)] = {
                "draft": str(draft),
                "bytes": (draft / WEIGHTS).stat().st_size,
                "sha256": {f.name: file_sha256(f) for f in sorted(draft.iterdir())},
            }
        return found

    def evaluate(self) -> dict[str, Any]:
        """Evaluate every exported draft; then summary, curves and card."""
        from .device import here
        from .evaluate import evaluate
        from .model import load_draft

        reports: dict[int, Any] = {}
        for seed in self.recipe.fit.seeds:
            folder, target = self.seed(seed), self._target()
            draft = load_draft(folder / "draft", target.dtype, here())
            layers = self.recipe.draft.layers
            report = evaluate(target, draft, self._rows(), layers, wrong=True)
            (folder / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n")
            self.say(f"evaluate: seed {seed}, accept length {report['all']['accept_length']:.3f}")
            reports[seed] = report
            self._pin(folder / "draft")
        self._tell(reports)
        return {"spread": card.spreads(reports), "seeds": {str(s): r for s, r in reports.items()}}

    def _pin(self, draft: Path) -> None:
        """Write the draft's exact counts beside it, in float32 whatever it is served in."""
        import torch

        from . import pinned
        from .device import here
        from .model import load_draft
        from .target import Target

        if "exact" not in self._loaded:
            self._loaded["exact"] = Target(self.target, torch.float32, here())
        rows = sorted(self._rows(), key=lambda row: len(row.tokens))
        exact = load_draft(draft, torch.float32, here())
        made = pinned.table(self._loaded["exact"], exact, rows, self.recipe.draft.layers, 4)
        if made["prompts"]:
            (draft / pinned.NAME).write_text(json.dumps(made) + "\n")

    def seed(self, seed: int) -> Path:
        """The folder of one seed."""
        return self.output / f"seed-{seed}"

    def _tell(self, reports: dict[int, Any]) -> None:
        seeds = list(reports)
        curves.draw(
            {f"seed {seed}": checkpoint.lines(self.seed(seed)) for seed in seeds},
            self.output / "curves.png",
        )
        counts = self._source().counts()
        summary = summarize(self.recipe, self.output, seeds, counts)
        (self.output / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
        if summary["prompts"] is not None:
            title = self.recipe.file.stem
            (self.output / "README.md").write_text(card.write(title, summary, reports, seeds[0]))

    def _rows(self) -> list[heldout.Row]:
        path = self.recipe.held_out()
        return [] if path is None else heldout.read(path)

    def _held_out_texts(self) -> list[str]:
        rows = self._rows()
        chat = Chat(self.target) if rows else None
        return [chat.text(row.prompt) for row in rows] if chat else []

    def _target(self) -> Any:
        from .device import dtype_of, here
        from .target import Target

        if "target" not in self._loaded:
            dtype = dtype_of(self.recipe.target.dtype)
            self._loaded["target"] = Target(self.target, dtype, here())
        return self._loaded["target"]

    def _ends(self) -> Any:
        from .device import dtype_of, here
        from .ends import Ends, read_ends

        if "ends" not in self._loaded:
            if self.data is None:
                target = self._target()
                ends = target.embedding, target.head, target.shape.config, target.final_norm
                made = Ends(*ends)
            else:
                made = read_ends(self.target, dtype_of(self.recipe.target.dtype), here())
            self._loaded["ends"] = made
        return self._loaded["ends"]

    def _source(self) -> Any:
        from .data import Answered, Captured
        from .device import here

        if "source" not in self._loaded:
            layers, fit = self.recipe.draft.layers, self.recipe.fit
            if self.data is None:
                rows = answers.read(self.output / "answers")
                sizes = fit.batch_tokens, fit.loop_tokens
                made: Any = Answered(self._target(), rows, layers, *sizes, fit.compile)
            else:
                made = Captured(self.data, layers, fit.batch_tokens, here())
            self._loaded["source"] = made
        return self._loaded["source"]

    def _held_out(self) -> tuple[list[heldout.Row], list[Any]]:
        from .evaluate import prepare

        if self.data is not None or not self.recipe.fit.evaluate_every:
            return [], []
        rows = self._rows()
        if "held_out" not in self._loaded:
            found = list(prepare(self._target(), rows, self.recipe.draft.layers))
            self._loaded["held_out"] = found
        return rows, self._loaded["held_out"]

    def _device_name(self) -> str:
        import torch

        if torch.cuda.is_available():
            return str(torch.cuda.get_device_name(0))
        return f"CPU, {os.cpu_count()} cores ({platform.machine()})"
