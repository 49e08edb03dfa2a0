"""The training loop of one seed: resumable, stopped on time, its figures in `log.jsonl`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import checkpoint, unroll
from .checkpoint import State
from .data import Source, coverage, vocabulary
from .ends import Ends
from .evaluate import Prepared, counts, summary
from .heldout import Row
from .model import Draft, DraftShape
from .optimizer import Optimizers
from .recipe import Recipe
from .schedule import Schedule
from .stop import Stop

# Not cuDNN's, which torch prefers on Hopper: its backward fails where the machine's cuDNN is older
# than the one that torch was built with.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_LOG_EVERY = 50  # steps
_SETTINGS = ("layers", "vocabulary", "heads", "kv_heads", "head_dim", "intermediate", "start")


@dataclass(frozen=True)
class Watch:
    """Held-out prompts that are counted while training, for curves; nothing is chosen by them."""

    rows: Sequence[Row]
    prepared: Sequence[Prepared]


def fit(
    recipe: Recipe,
    seed: int,
    source: Source,
    ends: Ends,
    folder: Path,
    stop: Stop,
    say: Callable[[str], None],
    watch: Watch | None = None,
) -> State:
    """Train, or go on training, the draft of one seed in `folder`.

    Returns:
        How far it has come; `done` is False if `stop` ended it, and a checkpoint is there either
        way. The same call goes on from it, with bit for bit the same steps where the schedule
        depends on steps alone.
    """
    device, wanted = ends.embedding.device, recipe.fit
    settings = settings_of(recipe, seed)
    held = checkpoint.read(folder)
    state = State(settings) if held is None else held[0]
    checkpoint.check_settings(state, settings, folder)
    tokens = held[1]["tokens"] if held else _tokens(recipe, source, ends, say)
    draft = Draft(shape_of(recipe, ends.config, len(tokens)), tokens, seed).to(device)
    optimizer = Optimizers.of(draft, wanted)
    if held is not None:
        checkpoint.restore(held[1], draft, optimizer)
    elif recipe.draft.start == "target":
        draft.take_ends(ends.head, ends.norm)
    schedule = Schedule(
        wanted.learning_rate, wanted.warmup, wanted.final, wanted.steps, 60 * wanted.minutes
    )
    run = _Run(recipe, source, ends, folder, draft, optimizer, schedule, state, say, watch)
    if not state.done:
        with sdpa_kernel(KERNELS):
            run.train(stop)
    return state


def settings_of(recipe: Recipe, seed: int) -> dict[str, Any]:
    """What a checkpoint cannot change: the draft's shape and start, seed and optimizer."""
    shape = {name: value for name, value in asdict(recipe.draft).items() if name in _SETTINGS}
    shape["layers"] = list(recipe.draft.layers)
    fit = recipe.fit
    return {**shape, "seed": seed, "unroll": fit.unroll, "optimizer": fit.optimizer}


def shape_of(recipe: Recipe, config: dict[str, Any], tokens: int) -> DraftShape:
    """The draft's sizes for a target's config."""
    draft, rope = recipe.draft, config.get("rope_parameters") or {}
    return DraftShape(
        hidden=config["hidden_size"],
        slots=len(draft.layers),
        heads=draft.heads,
        kv_heads=draft.kv_heads,
        head_dim=draft.head_dim,
        intermediate=draft.intermediate or config["intermediate_size"],
        vocabulary=tokens,
        eps=config["rms_norm_eps"],
        theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
    )


def _tokens(recipe: Recipe, source: Source, ends: Ends, say: Callable[[str], None]) -> torch.Tensor:
    end = ends.config.get("eos_token_id")
    always = [end] if isinstance(end, int) else list(end or [])
    found = source.counts()
    chosen = vocabulary(found, recipe.draft.vocabulary, len(ends.head), always)
    share = coverage(found, chosen)
    say(f"{source.tokens} answer tokens, {share:.2%} of them in a vocabulary of {len(chosen)}")
    return torch.tensor(chosen)


class _Run:
    """One run in memory."""

    def __init__(
        self,
        recipe: Recipe,
        source: Source,
        ends: Ends,
        folder: Path,
        draft: Draft,
        optimizer: Optimizers,
        schedule: Schedule,
        state: State,
        say: Callable[[str], None],
        watch: Watch | None,
    ) -> None:
        self.recipe, self.source, self.ends, self.folder = recipe, source, ends, folder
        self.draft, self.optimizer, self.schedule = draft, optimizer, schedule
        self.state, self.say, self.watch = state, say, watch
        self.device = ends.embedding.device
        self.log = checkpoint.Log(folder, state.step)
        self._began = time.monotonic() - state.seconds
        self._right = torch.zeros(recipe.fit.unroll, dtype=torch.long, device=self.device)
        self._seen, self._loss = 0, torch.zeros((), device=self.device)

    def train(self, stop: Stop) -> None:
        fit, state = self.recipe.fit, self.state
        if state.step == 0:
            self._measure_scale()
        while not state.done and not stop:
            order = self.source.order(1000 * int(state.settings["seed"]) + state.epoch)
            while state.index < len(order):
                progress = self.schedule.progress(state.step, self._elapsed())
                if progress >= 1:
                    state.done = True
                    break
                if stop:
                    break
                self._step(order[state.index], progress)
                if fit.save_every and state.step % fit.save_every == 0:
                    self._save()
                if fit.evaluate_every and state.step % fit.evaluate_every == 0:
                    self._evaluate()
            else:
                state.epoch, state.index = state.epoch + 1, 0
        self._report(self.schedule.progress(state.step, self._elapsed()))
        if state.done:
            self._evaluate()
        self._save()

    def _measure_scale(self) -> None:
        """One over each channel's size, of the first batch without the first token, whose states
        are hundreds of times larger than any other's."""
        first = self.source.load(self.source.order(0)[0]).states[:, 1:]
        self.draft.scale.copy_(first.float().square().mean((0, 1)).add(1e-6).rsqrt())

    def _step(self, numbers: list[int], progress: float) -> None:
        fit, state = self.recipe.fit, self.state
        rate = self.schedule.rate(state.step, progress)
        self.optimizer.set_rate(rate)
        batch = self.source.load(numbers)
        want = unroll.wanted(batch, self.ends.head, self.draft.tokens, fit.unroll)
        state.index += 1
        if len(want.best):
            self.optimizer.zero_grad()
            with self._precision():
                total, right = unroll.loss(self.draft, self.ends.embedding, batch, want, fit)
            total.backward()  # type: ignore[no-untyped-call]
            if fit.clip:
                torch.nn.utils.clip_grad_norm_(self.draft.parameters(), fit.clip)
            self.optimizer.step()
            self._right += right
            self._loss += total.detach() * len(want.best)
            self._seen += len(want.best)
            state.tokens += len(want.best)
        state.step += 1
        if state.step % _LOG_EVERY == 0:
            self._report(progress)

    def _precision(self) -> AbstractContextManager[object]:
        """bfloat16 products on a GPU; parameters and sums stay in float32."""
        if self.device.type != "cuda":
            return nullcontext()
        return torch.autocast("cuda", torch.bfloat16)

    def _report(self, progress: float) -> None:
        if not self._seen:
            return
        shares = (self._right.double() / self._seen).tolist()
        line: dict[str, Any] = {
            "step": self.state.step,
            "epoch": self.state.epoch,
            "tokens": self.state.tokens,
            "seconds": round(self._elapsed(), 2),
            "rate": self.schedule.rate(self.state.step, progress),
            "loss": float(self._loss) / self._seen,
            "right": [round(share, 5) for share in shares],
        }
        self.log.add(line)
        self.say(
            f"step {line['step']}, {100 * min(1.0, progress):.0f} %: loss {line['loss']:.3f}, "
            f"best token right by step {', '.join(f'{share:.3f}' for share in shares)}, "
            f"{self.state.tokens / 1e6:.1f} M tokens in {line['seconds']:.0f} s"
        )
        self._right.zero_()
        self._loss.zero_()
        self._seen = 0

    def _evaluate(self) -> None:
        if self.watch is None:
            return
        with self._precision():
            found = counts(self.draft, self.ends.embedding, self.watch.rows, self.watch.prepared, 3)
        told = summary(self.watch.rows, found)
        lengths = told["all"]["accept_length"], told["without_loops"]["accept_length"]
        self.log.add(
            {
                "step": self.state.step,
                "seconds": round(self._elapsed(), 2),
                "accept_length": lengths[0],
                "without_loops": lengths[1],
            }
        )
        self.say(f"held out: accept length {lengths[0]:.3f}, without loops {lengths[1]:.3f}")

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _save(self) -> None:
        self.state.seconds = self._elapsed()
        checkpoint.save(self.folder, self.state, self.draft, self.optimizer)
