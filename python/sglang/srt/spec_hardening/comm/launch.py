"""The plan of a launch, made in the parent before its environment is set and anything is spawned.

Called by: `Engine._launch_subprocesses` (patch `comm-plan-before-ranks`), for servers and for
`sgl.Engine` alike; its exceptions end the launch. Ranks are spawned later and inherit the
environment, so NCCL of every rank reads what is set here.

`SGLANG_SPEC_COMM_FACTS=FILE` replays a record of another machine, also on a CPU, to see what would
be decided and refused there.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import table
from .facts import Facts, PeerTest
from .measured import Measured
from .names import is_ours
from .plan import Plan, decide
from .settings import BYTES, Settings
from .variables import of_sglang

logger = logging.getLogger(__name__)

REPLAY = "SGLANG_SPEC_COMM_FACTS"
PEER_TIMEOUT_S = 120.0

_current: Plan | None = None
# What earlier launches of this process set, by plan or by upstream: not the user's.
_set_here: dict[str, str] = {}


def prepare(server_args: Any) -> Plan | None:
    """Decide, refuse, set the environment if a plan was asked for, and say what was decided.

    None where no tensor parallel group reduces on CUDA devices.

    Raises:
        CommunicationError: the launch asks for what this machine cannot do.
        FactsError, MeasuredError: a file that was named cannot be used.
    """
    from sglang.srt.arg_groups.overrides import declare_resolution, resolved_view

    global _current
    _current = None
    cfg = resolved_view(server_args)
    replay = os.environ.get(REPLAY)
    if replay is None and (cfg.device != "cuda" or cfg.tp_size < 2):
        return None
    settings = settings_of(server_args, cfg, "cuda" if replay else str(cfg.device))
    wanted = cfg.speculative_comm_plan
    measured = Measured.load(wanted) if wanted not in (None, "auto") else None
    facts = _facts(cfg, settings, replay, test_peers=wanted == "auto")
    if not facts.gpus and wanted is None and replay is None:
        logger.info("Communication: NVML tells nothing of these GPUs, so no plan is shown")
        return None
    environment = users(settings)
    plan = decide(facts, settings, environment, apply=wanted == "auto", measured=measured)
    for line in table.lines(plan):
        logger.info("%s", line)
    plan.check()
    for name, value in plan.to_set().items():
        os.environ[name] = _set_here[name] = value
    _set_here.update({one.name: one.value for one in of_sglang(settings)})
    custom = plan.choice("custom_all_reduce")
    if plan.applied and not custom.on and custom.by in ("plan", "measured"):
        declare_resolution(server_args, "speculative_comm_plan", disable_custom_all_reduce=True)
    _current = plan
    return plan


def server_info() -> dict[str, Any]:
    """The entry `communication` of `/server_info`: the plan as data and as the log's table."""
    if _current is None:
        return {}
    return {**_current.to_dict(), "table": table.lines(_current)}


def users(settings: Settings) -> dict[str, str]:
    """The variables that the user set: not those that upstream or an earlier plan put there."""
    started_with = _initial_names()
    upstream = {one.name: one.value for one in of_sglang(settings)}
    found = {}
    for name, value in os.environ.items():
        if not is_ours(name):
            continue
        if name not in started_with and value in (upstream.get(name), _set_here.get(name)):
            if _set_here.get(name) == value and upstream.get(name) != value:
                del os.environ[name]  # an earlier plan's; this one decides anew
            continue
        found[name] = value
    return found


def _initial_names() -> set[str]:
    """Names in the environment that this process was started with."""
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return set()
    return {entry.partition(b"=")[0].decode("utf-8", "replace") for entry in entries}


def settings_of(server_args: Any, cfg: Any, device: str) -> Settings:
    """What the resolved arguments ask for."""
    from sglang.srt.arg_groups.model_override_base import model_config_of

    model = model_config_of(server_args)
    dtype = str(model.dtype).removeprefix("torch.")
    graphs = cfg.cuda_graph_config
    decode = graphs.decode if graphs is not None else None
    speculative = cfg.speculative_algorithm is not None
    second = "two-batch overlap" if cfg.enable_two_batch_overlap else ""
    return Settings(
        tp_size=cfg.tp_size,
        nnodes=cfg.nnodes,
        device=device,
        architecture=(model.hf_config.architectures or [None])[0],
        hidden_size=model.hidden_size,
        dtype=dtype if dtype in BYTES else "bfloat16",
        max_bs=(decode.max_bs if decode is not None else None) or cfg.max_running_requests or 128,
        num_draft_tokens=(cfg.speculative_num_draft_tokens or 1) if speculative else 1,
        chunked_prefill_size=cfg.chunked_prefill_size,
        graphs=decode is None or str(decode.backend) != "disabled",
        attention_dp=bool(cfg.enable_dp_attention),
        deterministic=bool(cfg.enable_deterministic_inference),
        second_stream="multiplexed prefill (pdmux)" if cfg.enable_pdmux else second,
        fusion_backend=cfg.flashinfer_allreduce_fusion_backend,
        resolved=True,
        enforce_disable_fusion=cfg.enforce_disable_flashinfer_allreduce_fusion,
        disable_custom_all_reduce=cfg.disable_custom_all_reduce,
        enable_nccl_nvls=cfg.enable_nccl_nvls,
        enable_symm_mem=cfg.enable_symm_mem,
        enable_torch_symm_mem=cfg.enable_torch_symm_mem,
        enable_mscclpp=cfg.enable_mscclpp,
        enable_p2p_check=cfg.enable_p2p_check,
    )


def _facts(cfg: Any, settings: Settings, replay: str | None, test_peers: bool) -> Facts:
    if replay is not None:
        return Facts.load(replay)
    from .gather import gather

    here = gather()
    ranks = settings.tp_size // settings.nnodes
    start, step = cfg.base_gpu_id or 0, cfg.gpu_id_step or 1
    facts = here.only(range(start, start + ranks * step, step))
    if not test_peers or len(facts.gpus) < 2 or facts.full_nvlink(len(facts.gpus)):
        return facts
    if (start, step) != (0, 1):
        why = "GPUs that are not the first ones are not tested; give a plan file"
        return replace(facts, peers=PeerTest(why=why))
    from .peers import test

    return replace(facts, peers=test(len(facts.gpus), PEER_TIMEOUT_S))
