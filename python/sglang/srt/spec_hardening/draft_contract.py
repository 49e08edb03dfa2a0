"""Runs the draft/target contract on a launch, in the parent, before anything is loaded or spawned.

Called by: `arg_groups/speculative_hook.py`, at the top of the handling of speculative arguments
(patch `draft-contract`). That runs once for each launch, for servers and for `sgl.Engine` alike,
and its exceptions end the launch.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import Any

from sglang.srt.spec_hardening.contract import ContractError, Report, Settings, check_pair
from sglang.srt.spec_hardening.contract.checkpoint import INDEX
from sglang.srt.spec_hardening.contract.folder import find_folder, is_hub_id
from sglang.srt.spec_hardening.fingerprint import NAME as FINGERPRINT

logger = logging.getLogger(__name__)

MODES = ("enforce", "strict", "report")
_ALGORITHMS = {"EAGLE": "EAGLE", "NEXTN": "EAGLE", "EAGLE3": "EAGLE3"}
_OF_A_FOLDER = (".json", ".safetensors", ".bin", ".pt")
# Formats that are read from the folder's own safetensors, .bin or .pt files.
_CHECKPOINTS = ("auto", "safetensors", "pt", "bitsandbytes", "fastsafetensors", "layered")

_decided: dict[str, Any] = {}  # of the last launch of this process


def check_launch(server_args: Any) -> Report | None:
    """Check the draft of this launch; None where the contract does not apply.

    Args:
        server_args: the record that is being resolved.

    Raises:
        ContractError: the draft must not be served with this target.
    """
    from sglang.srt.arg_groups.overrides import resolving_view

    _decided.clear()
    cfg = resolving_view(server_args)
    algorithm = _ALGORITHMS.get((cfg.speculative_algorithm or "").upper())
    if algorithm is None or cfg.decrypted_config_file or cfg.decrypted_draft_config_file:
        return None
    draft = cfg.speculative_draft_model_path
    if _elsewhere(cfg.model_path) or _elsewhere(draft):
        reason = "the models are not Hugging Face folders"
        logger.info("Draft contract: not checked, %s", reason)
        _decided.update(mode=cfg.speculative_contract, reason=reason)
        return None
    began = time.perf_counter()
    settings = _settings(server_args, cfg, algorithm)
    report = check_pair(cfg.model_path, draft, settings)
    _conclude(report, cfg.speculative_contract, time.perf_counter() - began)
    return report


def server_info() -> dict[str, Any]:
    """The entry `contract` of `/server_info`: what was decided, in the words of the log.

    With `reason` alone where it was not checked; empty where it does not apply, and in a process
    that has not launched the server, as the workers of `--tokenizer-worker-num`.
    """
    return dict(_decided)


def _elsewhere(model: str | None) -> bool:
    """Whether a path is a single file or a URL, which other loaders of upstream read.

    A file of a model's folder is neither: whoever names it means the folder.
    """
    if model is None or "://" in model:
        return model is not None
    return os.path.isfile(model) and Path(model).suffix not in _OF_A_FOLDER


def _settings(server_args: Any, cfg: Any, algorithm: str) -> Settings:
    from sglang.srt.arg_groups.model_override_base import model_config_of
    from sglang.srt.arg_groups.overrides import resolved_view
    from sglang.srt.environ import envs
    from sglang.srt.runtime_context import attn_tp_size_of
    from sglang.utils import is_in_ci

    explicit = cfg._speculative_draft_quantization_explicitly_set
    partition = os.environ.get("SGLANG_PP_LAYER_PARTITION", "")
    draft_format = cfg.speculative_draft_load_format or cfg.load_format
    check_weights = draft_format in _CHECKPOINTS
    return Settings(
        algorithm=algorithm,
        tp_size=attn_tp_size_of(resolved_view(server_args)),
        pp_size=cfg.pp_size,
        context_length=model_config_of(server_args).context_len,
        allow_longer_context=(envs.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN.get() or is_in_ci()),
        # Resolved by now: what was not given has become the target's, "unquant" has become None.
        quantization=None if explicit else cfg.speculative_draft_model_quantization,
        rejection_sampling=bool(
            cfg.speculative_use_rejection_sampling or cfg.speculative_use_block_verification
        ),
        device=str(cfg.device),
        check_weights=check_weights,
        external_models=bool(envs.SGLANG_EXTERNAL_MODEL_PACKAGE.get()),
        pp_partition=tuple(int(layers) for layers in partition.split(",") if layers),
        revision=cfg.revision,
        draft_revision=cfg.speculative_draft_model_revision,
        draft_weights=_downloaded(cfg) if check_weights and algorithm == "EAGLE3" else None,
        overrides=json.loads(cfg.json_model_override_args or "{}"),
    )


def _downloaded(cfg: Any) -> str | None:
    """The folder of a hub draft's weights, fetched now as the ranks would fetch them later.

    A draft is small beside its target, and only its weights say what it was trained on. None where
    the draft is a local folder, or is in the cache already, or cannot be fetched: what is missing
    is then refused by its name.
    """
    draft, revision = cfg.speculative_draft_model_path, cfg.speculative_draft_model_revision
    if draft is None or Path(draft).expanduser().is_dir() or not is_hub_id(draft):
        return None
    cached = find_folder(draft, revision)
    if cached is not None and any(cached.glob("*.safetensors")):
        return None
    logger.info("Draft contract: fetching the weights of %s to check them", draft)
    try:
        return _fetched(draft, revision, cfg.download_dir)
    except Exception as error:  # of the network, the hub or the disk: told, and refused below
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        logger.error("Draft contract: %s could not be fetched: %s", draft, reason)
        return None


def _fetched(draft: str, revision: str | None, download_dir: str | None) -> str:
    from huggingface_hub import snapshot_download
    from sglang.srt.model_loader.weight_utils import download_weights_from_hf

    # Nothing has read the draft's config yet. What lies beside weights goes where its readers look.
    beside = ["config.json", "hf_quant_config.json", FINGERPRINT]
    snapshot_download(draft, revision=revision, allow_patterns=beside)
    folder: str = download_weights_from_hf(
        draft, download_dir, ["*.safetensors", "*.bin"], revision
    )
    snapshot_download(draft, revision=revision, cache_dir=download_dir, allow_patterns=[INDEX])
    return folder


def _conclude(report: Report, mode: str, seconds: float) -> None:
    report = report.strict() if mode == "strict" else report
    slots = [
        f"slot {slot.slot} takes {slot.takes} (loop index {slot.loop_index})"
        for slot in report.slots
    ]
    _decided.update(
        mode=mode,
        accepted=report.accepted,
        slots=slots,
        problems=[str(problem) for problem in report.problems],
        warnings=[str(warning) for warning in report.warnings],
        notes=list(report.notes),
    )
    for note in report.notes:
        logger.info("Draft contract: %s", note)
    for warning in report.warnings:
        logger.warning("Draft contract: %s", warning)
    if report.accepted:
        said = ", ".join(slots)
        logger.info("Draft contract: accepted in %.3f s%s%s", seconds, ": " * bool(said), said)
        return
    if mode == "report":
        logger.error("Draft contract: %s", report.error_text())
        return
    raise ContractError(report)
