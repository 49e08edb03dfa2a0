"""From facts, a launch and the user's environment to a plan: what reduces, and why. No torch.

`decide` is pure. What the user set wins and is shown as the user's. Without `apply` the plan tells
what plain SGLang does here and what it would change; with it, the changes are part of the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from . import choices, profiles
from .choices import Choice
from .facts import Facts
from .library import Row, row
from .measured import Measured
from .names import MAX_NUMEL, PCIE_IPC
from .refusals import Refusal, unmet
from .settings import Settings
from .variables import Variable, of_sglang, of_user

YOU, SGLANG, PLAN, MEASURED = "you", "sglang", "plan", "measured"


class CommunicationError(ValueError):
    """The launch asks for something that this machine cannot do; `refusals` has all of it."""

    def __init__(self, refusals: tuple[Refusal, ...]) -> None:
        self.refusals = refusals
        lines = "\n".join(f"  {one.line}" for one in refusals)
        super().__init__(f"communication settings that cannot be met on this machine:\n{lines}")


@dataclass(frozen=True)
class Plan:
    """applied: whether `variables` and `choices` with `by` "plan" or "measured" are in effect; else
    they are what would be changed, and `rows` shows the launch without them.
    """

    applied: bool
    fabric: str
    chip: str
    variables: tuple[Variable, ...]
    choices: tuple[Choice, ...]
    rows: tuple[Row, ...]
    warnings: tuple[str, ...]
    refusals: tuple[Refusal, ...]

    def to_set(self) -> dict[str, str]:
        """The environment that the plan adds; empty for a plan that is only shown."""
        if not self.applied:
            return {}
        return {one.name: one.value for one in self.variables if one.by in (PLAN, MEASURED)}

    def choice(self, name: str) -> Choice:
        return next(one for one in self.choices if one.name == name)

    def check(self) -> None:
        """Raise CommunicationError if something that was asked for cannot be met."""
        if self.refusals:
            raise CommunicationError(self.refusals)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def decide(
    facts: Facts,
    settings: Settings,
    environment: Mapping[str, str],
    *,
    apply: bool = False,
    measured: Measured | None = None,
) -> Plan:
    """The plan of one launch.

    Args:
        environment: what the user set; variables that bear on communication are taken from it.
        apply: whether the plan may change anything; a measured plan is always applied.
        measured: a plan file of this machine, whose choices go before the profiles'.
    """
    apply = apply or measured is not None
    refusals = tuple(unmet(facts, settings, environment, measured))
    wanted = choices.all_of(facts, settings, environment, measured)
    in_effect = wanted if apply else choices.without_plan(wanted, facts, settings, environment)
    variables = _variables(facts, settings, environment, wanted, measured)
    active = choices.active(in_effect, settings, environment, variables if apply else ())
    rows = tuple(row(what, rows, active) for what, rows in settings.messages())
    return Plan(
        applied=apply,
        fabric=facts.fabric(min(settings.tp_size, len(facts.gpus))),
        chip=facts.gpus[0].name if facts.gpus else "no GPU",
        variables=variables,
        choices=wanted,
        rows=rows,
        warnings=tuple(_warnings(facts, settings, environment, in_effect)),
        refusals=refusals,
    )


def _variables(
    facts: Facts,
    settings: Settings,
    environment: Mapping[str, str],
    wanted: tuple[Choice, ...],
    measured: Measured | None,
) -> tuple[Variable, ...]:
    found = {one.name: one for one in of_sglang(settings)}
    for one in _planned(facts, settings, wanted, measured):
        found[one.name] = one
    for one in of_user(environment):
        over = found.get(one.name)
        if over is not None and over.value != one.value:
            one = replace(one, why=f"set by you; {over.by} would have {over.value} here")
        found[one.name] = one
    return tuple(found[name] for name in sorted(found))


def _planned(
    facts: Facts, settings: Settings, wanted: tuple[Choice, ...], measured: Measured | None
) -> list[Variable]:
    """What the plan would set, before the user's own values are laid over it."""
    if settings.tp_size < 2 or settings.device != "cuda" or not facts.gpus:
        return []
    ipc = next(one for one in wanted if one.name == "pcie_ipc")
    found = []
    if measured is not None:
        found += [
            Variable(name, value, MEASURED, measured.why, measured.path)
            for name, value in measured.variables.items()
        ]
    elif not settings.deterministic:
        ranks = min(settings.tp_size, len(facts.gpus))
        for rule, value in profiles.read().values(
            nvlink=facts.full_nvlink(ranks),
            peers=facts.peers.state,
            nnodes=settings.nnodes,
            decode="other" if ipc.on else "nccl",
        ):
            why = f"{value.why}; published: {value.effect}"
            source = f"{value.source} ({value.date}), rule {rule}"
            found.append(Variable(value.variable, value.value, PLAN, why, source))
    if ipc.on and ipc.by in (PLAN, MEASURED):
        why = "switches the PCIe-IPC all-reduce on, see above"
        found.append(Variable(PCIE_IPC, "1", ipc.by, why, ipc.source))
        if ipc.limit and ipc.limit < settings.widest_verify_rows * settings.row_bytes:
            elements = str(ipc.limit // 2)
            why = f"up to {ipc.limit} bytes; larger messages stay on NCCL"
            found.append(Variable(MAX_NUMEL, elements, ipc.by, why, ipc.source))
    return found


def _warnings(
    facts: Facts,
    settings: Settings,
    environment: Mapping[str, str],
    in_effect: tuple[Choice, ...],
) -> list[str]:
    if settings.tp_size < 2 or settings.device != "cuda":
        return []
    found = []
    ranks = settings.tp_size // settings.nnodes
    if len(facts.gpus) < ranks:
        found.append(f"{ranks} ranks a node, and {len(facts.gpus)} GPUs are known")
        return found
    if facts.capability(ranks) is None:
        found.append("GPUs of several kinds: upstream asks the first one only what it can do")
    custom = next(one for one in in_effect if one.name == "custom_all_reduce")
    if custom.on and facts.peers.state == "broken":
        found.append(
            f"peer access is broken ({', '.join(facts.peers.failed[:4])}) and the custom "
            "all-reduce is on: sums may be wrong; give --disable-custom-all-reduce or "
            "--speculative-comm-plan auto"
        )
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    if any(part and not part.strip().isdigit() for part in visible.split(",")):
        found.append(
            "CUDA_VISIBLE_DEVICES names GPUs by UUID: upstream's custom all-reduce reads numbers "
            "only and stays off"
        )
    if facts.kernel.get("uvm_disable_hmm") == "N" and not facts.full_nvlink(ranks):
        found.append(
            "nvidia_uvm has HMM on (uvm_disable_hmm=N): on SM120 hosts the first all-reduce was "
            "reported to hang that way"
        )
    if settings.deterministic and any(
        name in environment for name in ("NCCL_ALGO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")
    ):
        found.append(
            "--enable-deterministic-inference overwrites NCCL_ALGO and NCCL_*_NCHANNELS: a tree "
            "of fixed width is what makes sums repeat"
        )
    return found
