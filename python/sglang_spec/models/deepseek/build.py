"""Makes the folders of a tiny DeepSeek target and its two drafts."""

from __future__ import annotations

from pathlib import Path

from sglang_spec.models import cache
from sglang_spec.models.cache import ModelError, say
from sglang_spec.models.deepseek.plan import DRAFTS, PLANS, Plan
from sglang_spec.models.pair import Pair
from sglang_spec.models.tiny.build import write_json, write_model
from sglang_spec.models.tiny.plan import BOS, EOS

PEAK_BYTES = 150_000_000


def deepseek_pair(name: str = "kimi", draft: str = "mla") -> Pair:
    """A target of `PLANS` with one of its drafts, made on first use.

    Raises:
        ModelError: there is no such target or draft, or the cache cannot be written.
    """
    if name not in PLANS or draft not in DRAFTS:
        raise ModelError(
            f"no {draft!r} draft of {name!r}; targets are {', '.join(PLANS)}, drafts "
            f"{', '.join(DRAFTS)}"
        )
    plan = PLANS[name]
    folder = cache.obtain(plan.entry_name(), lambda work: build(plan, work), needed=PEAK_BYTES)
    return Pair(folder / "target", folder / f"draft-{draft}")


def build(plan: Plan, folder: Path) -> None:
    """Writes `target/`, `draft-mla/` and `draft-llama/` into `folder`."""
    import torch

    from sglang_spec.models.deepseek import config, draft, text, vision
    from sglang_spec.models.tiny import tokenizer

    say(f"building {plan.entry_name()}")
    dice = torch.Generator().manual_seed(plan.seed)
    language = text.weights(plan, dice)
    state = language
    if plan.family == "kimi":
        state = {f"language_model.{name}": tensor for name, tensor in language.items()}
        state |= vision.weights(dice)
    write_model(folder / "target", config.target(plan), state)
    tokenizer.write(folder / "target")
    ids = {"bos_token_id": BOS, "eos_token_id": EOS}
    write_json(folder / "target" / "generation_config.json", ids)
    for style in DRAFTS:
        write_model(
            folder / f"draft-{style}", draft.config(style), draft.weights(style, plan, language)
        )
