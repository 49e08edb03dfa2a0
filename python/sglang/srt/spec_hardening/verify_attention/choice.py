"""Which kernel a target verify attends with: `--speculative-verify-attention`.

The triton backend verifies with its extend kernel: one program walks the whole prefix of a request
for one query head, and no two of them share what they read. A chain of drafts can be attended to
by the decode kernel as well: each draft is a row that sees the prefix and the drafts before it.

Called by: `arg_groups/validation_hook.py` (`check_launch`, in the parent, before anything is
loaded) and `rows.for_backend` (in each rank, with what the loaded model says).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

FLAG = "--speculative-verify-attention"
EXTEND = "extend"
DECODE = "decode"
AUTO = "auto"
MODES = (AUTO, EXTEND, DECODE)
ALGORITHMS = ("EAGLE", "EAGLE3")


class VerifyAttentionError(ValueError):
    """A launch or a layer that a verify cannot attend to with the decode kernel, and the remedy."""


@dataclass(frozen=True)
class Facts:
    """What decides whether a verify can be a decode; the defaults are those of a plain chain.

    Attributes:
        backend: attention backend that serves the target's verify, None if not known yet.
        topk: candidates a draft step; the drafts of 1 are a chain.
        sliding_window: some layers see a window of the prefix only.
        latent: keys and values are one latent vector (MLA).
        translated: slots of the KV cache are renumbered before a kernel reads them.
    """

    algorithm: str | None = "EAGLE3"
    backend: str | None = "triton"
    topk: int | None = 1
    adaptive: bool = False
    deterministic: bool = False
    two_batch_overlap: bool = False
    dcp_size: int = 1
    sliding_window: bool = False
    latent: bool = False
    recurrent: bool = False
    encoder_decoder: bool = False
    diffusion: bool = False
    translated: bool = False


def obstacles(facts: Facts) -> tuple[str, ...]:
    """Why a verify with these facts has to keep the extend kernel; empty if it need not."""
    return tuple(_obstacles(facts))


def _obstacles(facts: Facts) -> Iterator[str]:
    if facts.algorithm not in ALGORITHMS:
        yield f"--speculative-algorithm {facts.algorithm} (EAGLE, EAGLE3 and NEXTN can)"
    if facts.backend != "triton":
        yield f"the attention backend {facts.backend} for the target's verify (triton can)"
    if facts.topk != 1:
        yield f"--speculative-eagle-topk {facts.topk} (drafts are a chain with 1 only)"
    if facts.dcp_size > 1:
        yield f"--dcp-size {facts.dcp_size}"
    others = {
        "--speculative-adaptive": facts.adaptive,
        "--enable-deterministic-inference": facts.deterministic,
        "--enable-two-batch-overlap": facts.two_batch_overlap,
        "--enable-unified-memory": facts.translated,
        "a target with sliding-window layers": facts.sliding_window,
        "a target with latent attention (MLA)": facts.latent,
        "a target with recurrent (Mamba, linear attention) layers": facts.recurrent,
        "a target with an encoder of its own": facts.encoder_decoder,
        "a diffusion language model": facts.diffusion,
    }
    yield from (name for name, is_so in others.items() if is_so)


def as_decode(mode: str, facts: Facts) -> bool:
    """Whether a verify runs as a decode.

    Raises:
        VerifyAttentionError: `mode` demands it and `facts` do not allow it, or is not known.
    """
    if mode not in MODES:
        raise VerifyAttentionError(f"{FLAG} {mode}: write {', '.join(MODES)}.")
    if mode == EXTEND:
        return False
    found = obstacles(facts)
    if found and mode == DECODE:
        raise VerifyAttentionError(
            f"{FLAG} {DECODE} cannot be served with {'; '.join(found)}. Leave {FLAG} out of the "
            f"launch, or write {AUTO}, which takes {EXTEND} there."
        )
    return not found


def check_launch(server_args: Any) -> bool:
    """Refuse a launch whose verify cannot attend as its flag demands, before anything is loaded.

    Args:
        server_args: the record that is being resolved, all speculative arguments handled.

    Returns:
        Whether a verify is to run as a decode, as far as the arguments tell.

    Raises:
        VerifyAttentionError: what cannot be served, each by name.
    """
    from sglang.srt.arg_groups.model_override_base import model_config_of, resolved_view

    cfg = resolved_view(server_args)
    mode = cfg.speculative_verify_attention
    if mode == EXTEND:
        return False
    if cfg.speculative_algorithm is None:
        raise VerifyAttentionError(f"{FLAG} {mode} needs --speculative-algorithm.")
    if not as_decode(mode, _of_arguments(cfg)):
        return False
    return as_decode(mode, _of_model(model_config_of(server_args)))


def _of_arguments(cfg: Any) -> Facts:
    from sglang.srt.arg_groups.model_override_base import attention_backends_of

    prefill, decode = attention_backends_of(cfg)
    return Facts(
        algorithm=cfg.speculative_algorithm,
        backend=decode if cfg.speculative_attention_mode == "decode" else prefill,
        topk=cfg.speculative_eagle_topk,
        adaptive=cfg.speculative_adaptive,
        deterministic=cfg.enable_deterministic_inference,
        two_batch_overlap=cfg.enable_two_batch_overlap,
        dcp_size=cfg.dcp_size,
        diffusion=cfg.dllm_algorithm is not None,
        translated=cfg.enable_unified_memory,
    )


def _of_model(model: Any) -> Facts:
    from sglang.srt.configs.hybrid_arch import mambaish_config
    from sglang.srt.configs.model_config import AttentionArch

    return Facts(
        sliding_window=model.is_hybrid_swa,
        latent=model.attention_arch == AttentionArch.MLA,
        recurrent=mambaish_config(model) is not None,
        encoder_decoder=model.is_encoder_decoder,
    )
