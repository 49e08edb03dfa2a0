"""What the contract has to know of the launch: the few server arguments that bear on a draft."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Facts of the launch. The defaults are those of a server with nothing but a draft.

    Attributes:
        algorithm: the resolved `--speculative-algorithm` (EAGLE or EAGLE3).
        tp_size: ranks that share one attention layer (tensor parallel size without attention DP).
        pp_size: pipeline stages of the target.
        context_length: tokens the server will serve; None means what the target's config says.
        allow_longer_context: SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN is set.
        quantization: what the draft would inherit: `--quantization` as given, None where the
            checkpoint decides.
        draft_quantization: `--speculative-draft-model-quantization` as given.
        rejection_sampling: rejection sampling (or block verification, which implies it) is on.
        device: "cpu" widens the heads of a model that does not divide by the TP size.
        check_weights: False where no checkpoint is read (load format dummy).
        external_models: SGLANG_EXTERNAL_MODEL_PACKAGE is set, so unknown classes may exist.
        pp_partition: SGLANG_PP_LAYER_PARTITION, layers a stage.
        revision, draft_revision: for hub ids.
        draft_weights: folder of the draft's weights where it is not that of its config.
        overrides: `--json-model-override-args`, which upstream applies to both configs.
    """

    algorithm: str = "EAGLE3"
    tp_size: int = 1
    pp_size: int = 1
    context_length: int | None = None
    allow_longer_context: bool = False
    quantization: str | None = None
    draft_quantization: str | None = None
    rejection_sampling: bool = False
    device: str = "cuda"
    check_weights: bool = True
    external_models: bool = False
    pp_partition: tuple[int, ...] = ()
    revision: str | None = None
    draft_revision: str | None = None
    draft_weights: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
