"""Each library on or off, and why: fusion, custom all-reduce, PCIe-IPC, symmetric memory, MSCCL++.

`all_of` is what the plan would have; `without_plan` what plain SGLang has with the same flags.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from . import profiles
from .facts import Facts
from .library import LEGACY_BYTES, V2_BYTES, Active
from .measured import Measured
from .names import MAX_NUMEL, PCIE_IPC, V2
from .refusals import is_true
from .settings import Settings
from .variables import Variable

LEGACY_RANKS = (2, 4, 6, 8)
LEGACY, CUSTOM_V2 = "custom all-reduce (legacy)", "custom all-reduce V2"


@dataclass(frozen=True)
class Choice:
    """by: "you", "sglang", "plan" or "measured". limit: bytes, 0 if it has none of its own.
    detail: the backend or implementation."""

    name: str
    on: bool
    by: str
    why: str
    source: str = ""
    detail: str = ""
    limit: int = 0


def all_of(
    facts: Facts, settings: Settings, environment: Mapping[str, str], measured: Measured | None
) -> tuple[Choice, ...]:
    custom = _custom(facts, settings, environment, measured)
    return (
        _fusion(facts, settings),
        custom,
        _pcie_ipc(facts, settings, environment, custom, measured),
        *_asked_for(settings),
    )


def without_plan(
    wanted: Iterable[Choice],
    facts: Facts,
    settings: Settings,
    environment: Mapping[str, str],
) -> tuple[Choice, ...]:
    """The same launch with nothing changed by a plan."""
    plain = []
    for one in wanted:
        if one.by in ("plan", "measured"):
            if one.name == "custom_all_reduce":
                one = _custom_of_sglang(facts, settings, environment)
            else:
                one = replace(one, on=False, by="sglang", why="off unless asked for", limit=0)
        plain.append(one)
    return tuple(plain)


def active(
    in_effect: Iterable[Choice],
    settings: Settings,
    environment: Mapping[str, str],
    variables: Iterable[Variable],
) -> Active:
    """The libraries that are on, with the largest message of each."""
    on = {one.name: one for one in in_effect if one.on}
    custom, ipc = on.get("custom_all_reduce"), on.get("pcie_ipc")
    bound = settings.widest_verify_rows * settings.row_bytes
    numel = environment.get(MAX_NUMEL, "")
    for one in variables:
        numel = one.value if one.name == MAX_NUMEL else numel
    if numel.isdigit() and int(numel):
        bound = int(numel) * 2
    return Active(
        ranks=settings.tp_size,
        row_bytes=settings.row_bytes,
        bf16=settings.dtype == "bfloat16",
        fusion=on["fusion"].detail if "fusion" in on else "",
        mscclpp="mscclpp" in on,
        custom=custom.detail if custom else "",
        custom_bytes=custom.limit if custom else 0,
        symmetric="symmetric_memory" in on,
        pcie_ipc_bytes=bound if ipc else 0,
        torch_symm="torch_symmetric_memory" in on,
    )


def _fusion(facts: Facts, settings: Settings) -> Choice:
    backend = settings.fusion_backend
    if settings.enforce_disable_fusion:
        why = "--enforce-disable-flashinfer-allreduce-fusion"
        return Choice("fusion", False, "you", why)
    if settings.deterministic:
        why = "--enable-deterministic-inference"
        return Choice("fusion", False, "you", why)
    major = facts.gpus[0].capability[0] if facts.gpus else 0
    if backend is None and not settings.resolved and _fused_by_default(settings, major):
        backend = "auto"
    if settings.tp_size < 2 or backend is None:
        why = "one rank" if settings.tp_size < 2 else "not asked for, nor on by default here"
        return Choice("fusion", False, "sglang", why)
    if major not in (9, 10):
        return Choice("fusion", False, "sglang", "no kernels for this chip (SM90 and SM10x only)")
    if settings.attention_dp:
        return Choice("fusion", False, "sglang", "attention DP reduces over other groups")
    resolved = backend
    if backend == "auto":
        resolved = "mnnvl" if major == 10 else "trtllm"
    why = f"{backend} is {resolved} on SM{major}x" if backend == "auto" else "as resolved"
    return Choice("fusion", True, "sglang", why, detail=resolved)


def _fused_by_default(settings: Settings, major: int) -> bool:
    one_node = settings.nnodes == 1 or major == 10
    return (
        settings.architecture in profiles.read().fused_by_default and major in (9, 10) and one_node
    )


def _custom_of_sglang(facts: Facts, settings: Settings, environment: Mapping[str, str]) -> Choice:
    """What 0.5.23 does without a plan; it takes peer access for granted unless told to test."""

    def no(by: str, why: str) -> Choice:
        return Choice("custom_all_reduce", False, by, why)

    ranks = settings.tp_size
    if settings.disable_custom_all_reduce:
        return no("you", "--disable-custom-all-reduce")
    if settings.deterministic:
        return no("you", "--enable-deterministic-inference")
    if settings.device != "cuda" or ranks < 2:
        return no("sglang", "nothing to reduce between GPUs")
    if settings.nnodes > 1:
        return no("sglang", "the ranks span hosts (on unless shown to be one NVLink clique)")
    if len(facts.gpus) < ranks:
        return no("sglang", f"{ranks} ranks and {len(facts.gpus)} GPUs known")
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    if any(part and not part.strip().isdigit() for part in visible.split(",")):
        return no("sglang", "CUDA_VISIBLE_DEVICES is not a list of numbers")
    if facts.full_nvlink(ranks):
        if is_true(environment.get(V2, "1")):
            why = "NVLink between all ranks"
            return Choice("custom_all_reduce", True, "sglang", why, "", CUSTOM_V2, V2_BYTES)
        if ranks in LEGACY_RANKS:
            why = f"NVLink between all ranks, {V2} is off"
            return Choice("custom_all_reduce", True, "sglang", why, "", LEGACY, LEGACY_BYTES)
        return no("sglang", f"for {LEGACY_RANKS} ranks only")
    if ranks == 2:
        if settings.enable_p2p_check and facts.peers.state == "broken":
            return no("sglang", "--enable-p2p-check finds peer access broken")
        why = "two PCIe GPUs; upstream takes peer access for granted"
        return Choice("custom_all_reduce", True, "sglang", why, "", LEGACY, LEGACY_BYTES)
    return no("sglang", "more than two GPUs without NVLink between all of them")


def _custom(
    facts: Facts, settings: Settings, environment: Mapping[str, str], measured: Measured | None
) -> Choice:
    plain = _custom_of_sglang(facts, settings, environment)
    if plain.on and facts.peers.state == "broken":
        why = f"peer access is broken: {', '.join(facts.peers.failed[:4]) or facts.peers.why}"
        return Choice("custom_all_reduce", False, "plan", why, "tested here")
    if plain.on and measured is not None and not measured.custom_all_reduce:
        return Choice("custom_all_reduce", False, "measured", measured.why, measured.path)
    return plain


def _pcie_ipc(
    facts: Facts,
    settings: Settings,
    environment: Mapping[str, str],
    custom: Choice,
    measured: Measured | None,
) -> Choice:
    def no(why: str, by: str = "sglang") -> Choice:
        return Choice("pcie_ipc", False, by, why)

    asked = environment.get(PCIE_IPC)
    hindrance = _ipc_hindrance(facts, settings)
    if asked is not None:
        if not is_true(asked):
            return no(f"{PCIE_IPC}={asked}", "you")
        if hindrance:
            return no(hindrance)
        why = f"{PCIE_IPC}={asked}"
        if custom.on:
            why += f"; {custom.detail} goes before it"
        return Choice("pcie_ipc", True, "you", why)
    if hindrance:
        return no(hindrance)
    if measured is not None:
        if not measured.pcie_ipc_bytes:
            return no(f"won no size: {measured.why}", "measured")
        limit = measured.pcie_ipc_bytes
        return Choice("pcie_ipc", True, "measured", measured.why, measured.path, "", limit)
    if custom.on:
        return no(f"{custom.detail} serves these sizes and goes before it; comm-bench can tell")
    if facts.peers.state != "works":
        why = facts.peers.why or "run with --speculative-comm-plan auto, which tests it"
        return no(f"peer access is {facts.peers.state} ({why})")
    known = profiles.read().pcie_ipc
    capability = facts.capability(settings.tp_size)
    if capability not in known.capabilities:
        return no("no figures published for this chip; comm-bench can measure it")
    if settings.tp_size not in known.ranks:
        return no(f"no figures published for {settings.tp_size} ranks; comm-bench can measure it")
    if facts.nvcc is False:
        return no("its kernels are built at first use, and there is no nvcc here")
    limit = min(settings.widest_verify_rows * settings.row_bytes, known.max_bytes)
    source = f"{known.source} ({known.date})"
    return Choice("pcie_ipc", True, "plan", known.why, source, "", limit)


def _ipc_hindrance(facts: Facts, settings: Settings) -> str:
    """Why PCIe-IPC cannot serve this launch whatever anybody wants; empty if it can."""
    ranks = settings.tp_size
    if settings.device != "cuda" or ranks < 2:
        return "nothing to reduce between GPUs"
    if ranks not in (2, 4, 8):
        return f"for 2, 4 or 8 ranks, this launch has {ranks}"
    if settings.nnodes > 1:
        return "within one host only"
    if len(facts.gpus) < ranks:
        return f"{ranks} ranks and {len(facts.gpus)} GPUs known"
    if settings.deterministic:
        return "--enable-deterministic-inference: its order of sums follows the batch"
    if settings.dtype != "bfloat16":
        return f"bfloat16 only, this launch computes in {settings.dtype}"
    if settings.attention_dp:
        return "attention DP reduces over groups that it does not serve"
    if settings.second_stream:
        return f"one stream only, and {settings.second_stream} reduces on two"
    if facts.pcie_ipc is False:
        return f"FlashInfer {facts.versions.get('flashinfer', 'is not here')}: does not have it"
    return ""


def _asked_for(settings: Settings) -> list[Choice]:
    """Libraries that are on exactly where a flag asks for them."""
    off = settings.deterministic
    found = []
    for name, on, flag in (
        ("symmetric_memory", settings.enable_symm_mem, "--enable-symm-mem"),
        ("nvls", settings.enable_nccl_nvls, "--enable-nccl-nvls"),
        ("torch_symmetric_memory", settings.enable_torch_symm_mem, "--enable-torch-symm-mem"),
        ("mscclpp", settings.enable_mscclpp, "--enable-mscclpp"),
    ):
        if on and not (off and name == "torch_symmetric_memory"):
            found.append(Choice(name, True, "you", flag))
        else:
            found.append(Choice(name, False, "sglang", f"without {flag}"))
    return found
