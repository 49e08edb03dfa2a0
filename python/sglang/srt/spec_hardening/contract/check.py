"""The whole contract, in the order in which a person would want to hear of it."""

from __future__ import annotations

import os
from pathlib import Path

from ..fingerprint import NAME as FINGERPRINT
from ..fingerprint import FingerprintError
from ..fingerprint import load as load_fingerprint
from .checkpoint import Checkpoint, read_config
from .families import EAGLE3_DRAFTS, FAMILIES, Family
from .folder import find_folder, is_hub_id
from .layer_ids import ids_key, resolve_ids, uses_aux
from .quantization import check_quantization
from .report import Findings, Report, Slot
from .settings import Settings
from .shapes import (
    check_context,
    check_heads,
    check_hidden,
    check_rope,
    check_target,
    check_vocabulary,
    is_whole,
)
from .slots import check_ids, check_stages
from .weights import check_weights


def check_pair(
    target: str | Path, draft: str | Path | None, settings: Settings | None = None
) -> Report:
    """Whether `draft` may speculate for `target` under `settings`, and what each slot takes.

    Args:
        target, draft: folders, or hub ids that are in the local Hugging Face cache.

    Returns:
        A report; never raises for what is wrong with a model.
    """
    settings = settings or Settings()
    findings = Findings()
    if draft is None:
        _no_draft(target, settings, findings)
        return findings.report()
    configs = _read_both(target, draft, settings, findings)
    if configs is None:
        return findings.report()
    return findings.report(_check(*configs, settings, findings))


def _no_draft(target: str | Path, settings: Settings, findings: Findings) -> None:
    if settings.algorithm == "EAGLE3":
        findings.refuse(
            "draft-path-missing",
            "command line",
            "--speculative-draft-model-path",
            None,
            f"EAGLE3 needs a draft checkpoint trained for {target}; name its folder or hub id",
        )


def _read_both(
    target: str | Path, draft: str | Path, settings: Settings, findings: Findings
) -> tuple[Checkpoint, Checkpoint] | None:
    found = []
    for role, model, revision in (
        ("target", target, settings.revision),
        ("draft", draft, settings.draft_revision),
    ):
        folder = find_folder(model, revision)
        if folder is None:
            _refuse_path(role, model, findings)
            continue
        checkpoint = read_config(folder, findings, settings.overrides)
        if checkpoint is not None:
            found.append(checkpoint)
    return (found[0], found[1]) if len(found) == 2 else None


def _refuse_path(role: str, model: str | Path, findings: Findings) -> None:
    key = "--model-path" if role == "target" else "--speculative-draft-model-path"
    remedy = "no such folder"
    if os.path.isfile(model):
        remedy = "this is a file; name the folder that holds config.json and the weights"
    if is_hub_id(model):
        remedy += ", and no such hub id in the local Hugging Face cache; download it first"
    findings.refuse(f"{role}-not-found", "command line", key, str(model), remedy)


def _check(
    target: Checkpoint, draft: Checkpoint, settings: Settings, findings: Findings
) -> tuple[Slot, ...]:
    if not _check_algorithm(draft, settings, findings) or settings.algorithm != "EAGLE3":
        return ()
    family = _family(target, settings, findings)
    config = draft.config
    ids = resolve_ids(config, draft.config_file, findings)
    check_target(target, findings)
    check_hidden(draft, target, findings)
    check_vocabulary(draft, target, findings)
    check_heads(draft, settings, findings)
    check_rope(draft, target, findings)
    check_context(draft, target, settings, findings)
    check_quantization(draft, settings, findings)
    _check_rejection(draft, settings, findings)
    slots = _slots(target, draft, family, ids, settings, findings)
    count = _count(draft, ids, findings)
    if settings.check_weights:
        check_weights(draft, Path(settings.draft_weights or draft.folder), count, findings)
    _check_fingerprint(draft, count, findings)
    return slots if not findings.problems else ()


def _check_fingerprint(draft: Checkpoint, count: int, findings: Findings) -> None:
    """A fingerprint beside the draft can be read, and is that of a draft of as many slots."""
    file = draft.folder / FINGERPRINT
    again = "write it again with the tool that captures, or remove it"
    try:
        marks = load_fingerprint(draft.folder)
    except FingerprintError as error:
        reason = str(error).removeprefix(f"{file} cannot be read: ")
        findings.refuse("fingerprint-unreadable", file, "prompts", reason, again)
        return
    for number, prompt in enumerate(marks.prompts if marks else ()):
        if len(prompt.slots) != count:
            findings.refuse(
                "fingerprint-slots",
                file,
                f"prompts[{number}].slots",
                len(prompt.slots),
                f"the draft takes {count} states, so this is another draft's; {again}",
            )
            return


def _check_algorithm(draft: Checkpoint, settings: Settings, findings: Findings) -> bool:
    eagle3 = draft.architecture in EAGLE3_DRAFTS
    if settings.algorithm == "EAGLE3" and not eagle3:
        known = f"the EAGLE3 drafts of this tree are {', '.join(EAGLE3_DRAFTS)}"
        if settings.external_models and "Eagle3" in draft.architecture:
            findings.warn(
                "draft-unchecked",
                draft.config_file,
                "architectures",
                draft.architecture,
                f"{known}; a class of SGLANG_EXTERNAL_MODEL_PACKAGE is not checked",
            )
            return False
        findings.refuse(
            "algorithm-mismatch",
            draft.config_file,
            "architectures",
            draft.architecture,
            f"{known}; give --speculative-algorithm EAGLE for a draft of another kind",
        )
        return False
    if settings.algorithm == "EAGLE" and eagle3:
        findings.refuse(
            "algorithm-mismatch",
            draft.config_file,
            "architectures",
            draft.architecture,
            "this is an EAGLE3 draft, and with EAGLE no layer is captured for it and nothing it "
            "drafts is accepted; give --speculative-algorithm EAGLE3",
        )
        return False
    return True


def _family(target: Checkpoint, settings: Settings, findings: Findings) -> Family | None:
    family = FAMILIES.get(target.architecture)
    if family is not None:
        return family
    report = findings.warn if settings.external_models else findings.refuse
    report(
        "target-no-capture",
        target.config_file,
        "architectures",
        target.architecture,
        "this class cannot capture layers for EAGLE3 (it has no set_eagle3_layers_to_capture); "
        "serve it without a draft or with a draft of another kind",
    )
    return None


def _slots(
    target: Checkpoint,
    draft: Checkpoint,
    family: Family | None,
    ids: tuple[int, ...] | None,
    settings: Settings,
    findings: Findings,
) -> tuple[Slot, ...]:
    if not uses_aux(draft.config):
        findings.note("use_aux_hidden_state is false: the draft takes the target's last state")
        return (Slot(0, "last hidden state", target.layers or 0),)
    layers = target.layers
    if family is None or not is_whole(layers) or _ids_refused(findings):
        return ()
    key = ids_key(draft.config)
    slots = check_ids(ids, family, layers, key, draft.config_file, findings)
    if settings.pp_size > 1 and slots:
        stages = settings.pp_partition or _even(layers, settings.pp_size)
        check_stages(slots, layers, stages, key, draft.config_file, findings)
    return slots


def _ids_refused(findings: Findings) -> bool:
    return findings.has(
        "eagle-config-type", "ids-misspelt", "ids-disagree", "ids-type", "ids-empty"
    )


def _even(layers: int, stages: int) -> tuple[int, ...]:
    """Layers a stage without an explicit partition: the last ones take the remainder."""
    base, rest = divmod(layers, stages)
    return tuple(base + (stage >= stages - rest) for stage in range(stages))


def _count(draft: Checkpoint, ids: tuple[int, ...] | None, findings: Findings) -> int:
    """How many states `fc` is built for, by the class's own reading of the config."""
    if not uses_aux(draft.config):
        return 0
    declared = draft.text.get("num_aux_hidden_states")
    count = len(ids) if ids else 3
    if (
        declared is not None
        and (declared != count or not is_whole(declared))
        and not _ids_refused(findings)
    ):
        findings.refuse(
            "ids-count",
            draft.config_file,
            "num_aux_hidden_states",
            declared,
            f"{'the list names' if ids else 'without a list there are'} {count} layers; write "
            f"{count}, or name {declared} layers",
        )
    return count


def _check_rejection(draft: Checkpoint, settings: Settings, findings: Findings) -> None:
    reduced = draft.integer("draft_vocab_size")
    if settings.rejection_sampling and reduced and reduced != draft.integer("vocab_size"):
        findings.refuse(
            "rejection-sampling",
            draft.config_file,
            "draft_vocab_size",
            reduced,
            "rejection sampling needs the draft's distribution over the whole vocabulary; start "
            "without --speculative-use-rejection-sampling and block verification, or use a draft "
            "with a full head",
        )
