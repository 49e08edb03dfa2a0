"""Whether the draft's weights are read in the format in which they were written."""

from __future__ import annotations

from .checkpoint import Checkpoint
from .report import Findings
from .settings import Settings

# Methods that quantise plain weights while they are loaded; the others need a checkpoint made for
# them and read a plain draft as packed bytes.
ONLINE = frozenset(
    {"fp8", "mxfp8", "bitsandbytes", "nvfp4_online", "w8a8_fp8", "w8a8_int8", "petit_nvfp4"}
)
UNQUANTIZED = "unquant"


def is_quantized(draft: Checkpoint) -> bool:
    """Whether the draft's own config says that it is quantised."""
    return (
        any(draft.config.get(key) for key in ("quantization_config", "compression_config"))
        or (draft.folder / "hf_quant_config.json").is_file()
    )


def check_quantization(draft: Checkpoint, settings: Settings, findings: Findings) -> None:
    """`--quantization` speaks of the target; upstream applies it to the draft as well."""
    for key in ("quantization_config", "compression_config"):
        held = draft.config.get(key)
        if held and not isinstance(held, dict):
            findings.refuse(
                "config-unreadable",
                draft.config_file,
                key,
                held,
                'write it as an object, e.g. {"quant_method": "fp8"}, or leave it out',
            )
    inherited = settings.quantization
    explicit = settings.draft_quantization is not None
    if inherited in (None, UNQUANTIZED) or explicit or is_quantized(draft):
        return
    if inherited == "modelopt_fp4" and draft.architecture == "Eagle3DeepseekV2ForCausalLM":
        findings.note("the draft does not take the target's modelopt_fp4, its weights are plain")
        return
    remedy = (
        "the draft's weights are plain and would be read as the target's format; add "
        f"--speculative-draft-model-quantization {UNQUANTIZED}"
    )
    if inherited in ONLINE:
        findings.warn(
            "quantization-online",
            "command line",
            "--quantization",
            inherited,
            f"the draft is quantised to {inherited} as well while it is loaded; if that is not "
            f"meant, add --speculative-draft-model-quantization {UNQUANTIZED}",
        )
        return
    findings.refuse("quantization-inherited", "command line", "--quantization", inherited, remedy)
