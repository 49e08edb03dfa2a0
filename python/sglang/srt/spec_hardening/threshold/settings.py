"""The threshold's flags: what they say, and what a launch that has them cannot serve.

Called by: `arg_groups/validation_hook.py`, once all arguments are resolved
(patch `batch-threshold-flags`), in the parent, before anything is loaded; the worker reads the
same settings again from the published arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import adapters
from .policy import Bounds

AUTO = "auto"
FLAG = "--speculative-disable-batch-threshold"
ENTER = "--speculative-enable-batch-threshold"
DWELL = "--speculative-threshold-dwell"
DEFAULT_DWELL = 32


class ThresholdError(ValueError):
    """A launch that the batch threshold cannot serve: flag, value, reason and remedy."""


@dataclass(frozen=True)
class Settings:
    """The three flags. `disable_at` is a row count or `auto`; None stands for the default."""

    disable_at: int | str
    enable_at: int | None = None
    dwell: int | None = None


def settings_of(arguments: Any) -> Settings | None:
    """The settings of a launch, None if it has no threshold.

    Args:
        arguments: anything with the fields `speculative_disable_batch_threshold`,
            `speculative_enable_batch_threshold` and `speculative_threshold_dwell`.

    Raises:
        ThresholdError: a value is not what its flag takes.
    """
    threshold = arguments.speculative_disable_batch_threshold
    enable_at = arguments.speculative_enable_batch_threshold
    dwell = arguments.speculative_threshold_dwell
    if threshold is None:
        for flag, value in ((ENTER, enable_at), (DWELL, dwell)):
            if value is not None:
                raise ThresholdError(f"{flag} {value} needs {FLAG}, which is not given.")
        return None
    text = str(threshold).strip().lower()
    if text != AUTO and not (text.isdecimal() and int(text) >= 1):
        raise ThresholdError(
            f"{FLAG} {threshold}: write the number of running requests from which speculation is "
            f"off, 1 or more, or {AUTO}."
        )
    settings = Settings(AUTO if text == AUTO else int(text), enable_at, dwell)
    _check_numbers(settings)
    return settings


def _check_numbers(settings: Settings) -> None:
    if settings.dwell is not None and settings.dwell < 1:
        raise ThresholdError(f"{DWELL} {settings.dwell}: write 1 batch or more.")
    enable_at = settings.enable_at
    if enable_at is None:
        return
    if settings.disable_at == AUTO:
        raise ThresholdError(f"{ENTER} {enable_at}: {FLAG} {AUTO} finds its own; leave it out.")
    if not 0 <= enable_at < int(settings.disable_at):
        raise ThresholdError(
            f"{ENTER} {enable_at}: speculation returns at fewer running requests than "
            f"{FLAG} {settings.disable_at} names; write 0 to {int(settings.disable_at) - 1}."
        )


def bounds_of(settings: Settings) -> Bounds:
    """The bounds of a fixed threshold; speculation returns at three quarters of it by default."""
    leave_at = int(settings.disable_at)
    enter_at = leave_at * 3 // 4 if settings.enable_at is None else settings.enable_at
    return Bounds(leave_at, enter_at, settings.dwell or DEFAULT_DWELL)


def check_launch(server_args: Any) -> Settings | None:
    """Refuse a launch that the threshold cannot serve; None where there is no threshold.

    Args:
        server_args: the record that is being resolved, all speculative arguments handled.

    Raises:
        ThresholdError: what cannot be served, each by name.
    """
    from sglang.srt.arg_groups.model_override_base import model_config_of, resolved_view

    cfg = resolved_view(server_args)
    settings = settings_of(cfg)
    if settings is None:
        return None
    problems = list(_unsupported(cfg))
    if not problems:
        problems = list(_unsupported_models(model_config_of(server_args)))
    if problems:
        raise ThresholdError(
            f"{FLAG} {cfg.speculative_disable_batch_threshold} cannot be served with "
            + "; ".join(problems)
            + f". Leave one of the two out of the launch, {FLAG} or the other."
        )
    most = cfg.max_running_requests
    if settings.disable_at != AUTO and most is not None and int(settings.disable_at) > most:
        raise ThresholdError(
            f"{FLAG} {settings.disable_at} would never be reached: --max-running-requests is "
            f"{most}. Lower the threshold or raise --max-running-requests."
        )
    return settings


def _unsupported(cfg: Any) -> Iterator[str]:
    """What of this launch does not go together with the threshold, in the launch's own words."""
    from sglang.srt.environ import envs
    from sglang.srt.runtime_context import attn_dp_enabled_of
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    algorithm = cfg.speculative_algorithm
    if algorithm not in ("EAGLE", "EAGLE3"):
        yield f"--speculative-algorithm {algorithm} (EAGLE, EAGLE3 and NEXTN can)"
        return
    platform = SpeculativeAlgorithm.from_string(algorithm).get_platform_worker_cls()
    if platform is not None:
        yield f"the platform's own worker {platform.__name__}"
    if attn_dp_enabled_of(cfg):
        yield "attention data parallelism (ranks with different batches would decide differently)"
    sizes = {
        "--pp-size": cfg.pp_size,
        "--attn-cp-size": cfg.attn_cp_size,
        "--dcp-size": cfg.dcp_size,
    }
    yield from (f"{flag} {size}" for flag, size in sizes.items() if size > 1)
    flags = {
        "--speculative-adaptive": cfg.speculative_adaptive,
        "--enable-multi-layer-eagle": cfg.enable_multi_layer_eagle,
        "--enable-two-batch-overlap": cfg.enable_two_batch_overlap,
        "--enable-pdmux": cfg.enable_pdmux,
        "--enable-mixed-chunk": cfg.enable_mixed_chunk,
        "--enable-hisparse": cfg.enable_hisparse,
        "--enable-streaming-session": cfg.enable_streaming_session,
        "--enable-unified-memory": cfg.enable_unified_memory,
        "--enable-watermark": cfg.enable_watermark,
    }
    yield from (flag for flag, given in flags.items() if given)
    yield from adapters.refused(cfg)
    if cfg.disaggregation_mode != "null":
        yield f"--disaggregation-mode {cfg.disaggregation_mode}"
    if envs.SGLANG_ENABLE_OVERLAP_PLAN_STREAM.get():
        yield "SGLANG_ENABLE_OVERLAP_PLAN_STREAM=1"


def _unsupported_models(model: Any) -> Iterator[str]:
    """Targets whose positions or states a plain step does not get right here."""
    from sglang.srt.configs.hybrid_arch import mambaish_config

    if model.is_hybrid_swa:
        yield "a target with sliding-window layers"
    if mambaish_config(model) is not None:
        yield "a target with recurrent (Mamba, linear attention) layers"
    if model.model_is_mrope:
        yield "a target with multimodal rotary positions (M-RoPE)"
