"""Capture of the target's layers for an EAGLE3 draft: one reading of the ids, and a capture that
checks itself.

Upstream reads the ids at several places that disagree about nested and top-level keys, swallows any
error while doing so, and never looks at what was captured. Here every reader is given the same
list, the model is asked where it will capture after it was told to, and the number and width of the
states it hands over are compared with the plan at every forward that runs Python: the eager ones
and those that record a graph.

Called by (patch `aux-capture-checks-itself`): `configs/model_config.py`,
`model_runner_components/spec_aux_hidden_state.py` and `attention_backend_setup.py`,
`managers/scheduler_components/internal_state.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from sglang.srt.spec_hardening import capture_writer
from sglang.srt.spec_hardening.capture_plan import CaptureError, CapturePlan
from sglang.srt.spec_hardening.contract import ContractError
from sglang.srt.spec_hardening.contract.families import EAGLE3_DRAFTS, FAMILIES
from sglang.srt.spec_hardening.contract.folder import find_folder
from sglang.srt.spec_hardening.contract.layer_ids import IDS, NESTED, resolve_ids, uses_aux
from sglang.srt.spec_hardening.contract.report import Findings
from sglang.srt.spec_hardening.contract.slots import slots_of
from sglang.srt.spec_hardening.fingerprint import Fingerprint, load

logger = logging.getLogger(__name__)

PLAN = "eagle3_capture_plan"


def unify_layer_ids(hf_config: Any) -> None:
    """Put ids that stand at the top level of a draft's config where every reader finds them."""
    ids = getattr(hf_config, IDS, None)
    if ids is None or hf_config.architectures[0] not in EAGLE3_DRAFTS:
        return
    section = getattr(hf_config, NESTED, None)
    if section is None or (isinstance(section, dict) and section.get(IDS) is None):
        setattr(hf_config, NESTED, {**(section or {}), IDS: list(ids)})


def draft_layer_ids(hf_config: Any, mode: str) -> tuple[bool, list[int] | None]:
    """Whether a draft takes captured layers, and the ids it declares (None: the default).

    Args:
        mode: of `--speculative-contract`; with `report` what cannot be read is logged and taken
            as upstream takes it.

    Raises:
        ContractError: the ids cannot be read, or two places disagree about them.
    """
    config = hf_config.to_dict()
    findings = Findings()
    ids = resolve_ids(config, f"{hf_config.name_or_path}/config.json", findings)
    if findings.problems and mode != "report":
        raise ContractError(findings.report())
    if findings.problems:
        logger.error("Draft contract: %s", findings.report().error_text())
        section = config.get(NESTED)
        return uses_aux(config), section.get(IDS) if isinstance(section, dict) else None
    return uses_aux(config), None if ids is None else list(ids)


def plan_capture(
    model: Any, ids: Sequence[int] | None, is_last_stage: bool = True, has_draft: bool = True
) -> None:
    """Check that `model`, having been given `ids`, will capture what they mean, and remember it.

    The plan is logged and put on the model and its logits processor. A model whose class the
    contract does not know is taken at its word. A target without a draft is left alone unless its
    states go to files; then it captures what the tool asks for.

    Raises:
        CaptureError: the model will capture other layers, or none.
    """
    dump = capture_writer.settings()
    if not is_last_stage or not (has_draft or dump):
        return
    text = _text_config(model.config)
    layers = int(text.num_hidden_layers)
    given = None if ids is None else tuple(ids)
    if dump is not None and dump.loop_indices is not None:
        capture_writer.redirect(_parts(model), dump.loop_indices)
    will = _told(model)
    lenient = has_draft and _mode() == "report"
    family = None if dump is not None else FAMILIES.get(type(model).__name__)
    wanted = tuple(will) if family is None else family.loop_indices(given, layers)
    hidden = getattr(text, "hidden_size", None)
    convention = f"{family.convention.value} ({family.source})" if family else "not known"
    if lenient:  # what was refused is in the log; from here on the model is taken at its word
        wanted = tuple(sorted(set(will)))
    marks = _fingerprint() if has_draft else None
    plan = CapturePlan(slots_of(wanted), given, convention, hidden, marks)
    if not lenient and (tuple(will) != wanted or list(wanted) != sorted(set(wanted))):
        raise CaptureError(
            f"the draft takes {plan}, but {type(model).__name__} will capture before the layers "
            f"{will or 'none'}, in increasing order"
        )
    logger.info("EAGLE3 capture: %s; ids %s: %s", plan, given, convention)
    setattr(model, PLAN, plan)
    for module in model.modules():
        if hasattr(module, "capture_plan"):
            module.capture_plan = plan


def _mode() -> str:
    """Of `--speculative-contract`."""
    from sglang.srt.runtime_context import get_spec

    return str(get_spec().speculative_contract)


def _fingerprint() -> Fingerprint | None:
    """The fingerprint beside the draft of this server."""
    from sglang.srt.runtime_context import get_spec

    spec = get_spec()
    draft = spec.speculative_draft_model_path
    folder = find_folder(draft, spec.speculative_draft_model_revision) if draft else None
    return None if folder is None else load(folder)


def fingerprint_prompts(model: Any) -> list[tuple[int, ...]]:
    """The prompts that the self-test has to prefill, one at a time."""
    marks = getattr(getattr(model, PLAN, None), "fingerprint", None)
    return [] if marks is None else [prompt.input_ids for prompt in marks.prompts]


def unproven_prompts(model: Any) -> list[int]:
    """Of the fingerprint's prompts, by number, those that no forward has shown the states of."""
    marks = getattr(getattr(model, PLAN, None), "fingerprint", None)
    if marks is None:
        return []
    return [number for number in range(len(marks.prompts)) if number not in marks.proven]


def capture_info(model: Any) -> dict[str, Any] | None:
    """The plan of a target as it goes into `/server_info`; None where nothing is captured."""
    plan = getattr(model, PLAN, None)
    return None if plan is None else plan.to_json()


def _told(model: Any) -> list[int]:
    """The loop indices that the model, or the language model inside it, holds now."""
    for owner in _parts(model):
        if listed := getattr(owner, "layers_to_capture", None):
            return [int(index) for index in listed]
    return []


def _parts(model: Any) -> list[Any]:
    """The objects of a model that may hold the list: the decoder stacks first, then wrappers."""
    outer = [model, getattr(model, "language_model", None)]
    inner = [getattr(owner, "model", None) for owner in outer]
    return [part for part in [*inner, *outer] if part is not None]


def _text_config(config: Any) -> Any:
    text = getattr(config, "text_config", None)
    return config if text is None else text
