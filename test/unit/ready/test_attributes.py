"""No attribute of an EAGLE worker can be missing: declared first, checked last.

The tables of `invariants` are held against the workers' source, so an attribute that upstream
(or a patch) adds has to be declared, and one that is taken out of a table is named here.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import SimpleNamespace

import pytest
import sglang.srt.model_executor.cuda_graph_config
import sglang.srt.platforms
import sglang.srt.runtime_context
import sglang.srt.utils
from sglang.srt.spec_hardening import attributes, invariants
from sglang.srt.speculative import (
    eagle_worker_v2,
    frozen_kv_mtp_worker_v2,
    multi_layer_eagle_worker_v2,
    standalone_worker_v2,
)
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker, EagleDraftWorkerBase

CLASSES = {
    "EagleDraftWorker": eagle_worker_v2.EagleDraftWorker,
    "EAGLEWorkerV2": eagle_worker_v2.EAGLEWorkerV2,
    "MultiLayerEagleDraftWorker": multi_layer_eagle_worker_v2.MultiLayerEagleDraftWorker,
    "MultiLayerEagleWorkerV2": multi_layer_eagle_worker_v2.MultiLayerEagleWorkerV2,
}
HEIRS = {
    "StandaloneDraftWorker": standalone_worker_v2.StandaloneDraftWorker,
    "StandaloneWorkerV2": standalone_worker_v2.StandaloneWorkerV2,
    "FrozenKVMTPWorkerV2": frozen_kv_mtp_worker_v2.FrozenKVMTPWorkerV2,
}
# What the base classes' constructors set, before any other line of theirs can throw.
OF_THE_BASES = {
    "_specialized_graph_memory_usage",
    "_specialized_graph_time_usage",
    "_additional_graph_memory_usage",
    "_additional_graph_time_usage",
}


def _own_attributes(cls: type) -> set[str]:
    """Every `self.NAME` that the class, or a method it inherits from its own base, touches."""
    names = _touched(inspect.getsource(cls))
    if issubclass(cls, EagleDraftWorkerBase):
        names |= _touched(inspect.getsource(EagleDraftWorkerBase))
    return {name for name in names if not hasattr(cls, name)} - OF_THE_BASES


def _touched(source: str) -> set[str]:
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


TOUCHED = [
    (name, attribute) for name in CLASSES for attribute in sorted(_own_attributes(CLASSES[name]))
]


@pytest.mark.parametrize(("name", "attribute"), TOUCHED, ids=lambda value: value)
def test_every_attribute_that_is_read_or_set_is_declared(name: str, attribute: str) -> None:
    assert attribute in invariants.BY_CLASS[name], (
        f"{name}.{attribute} is used but not declared in spec_hardening/invariants.py: it would "
        "not exist in a worker whose construction was left early"
    )


def test_every_declared_attribute_is_used() -> None:
    """So that taking any one out of the tables fails above, by its name."""
    declared = {(name, attribute) for name in CLASSES for attribute in invariants.BY_CLASS[name]}
    assert declared == set(TOUCHED)


DECLARED = [
    (name, attribute)
    for name, cls in {**CLASSES, **HEIRS}.items()
    for attribute in invariants._table(object.__new__(cls))
]


@pytest.mark.parametrize(("name", "attribute"), DECLARED, ids=lambda value: value)
def test_a_constructor_that_fails_in_its_first_call_leaves_every_attribute(
    name: str, attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def throw(self: object) -> None:
        raise RuntimeError("first call")

    for base in (EagleDraftWorkerBase, BaseSpecWorker):
        monkeypatch.setattr(base, "__init__", throw)
    worker = object.__new__({**CLASSES, **HEIRS}[name])
    with pytest.raises(RuntimeError, match="first call"):
        worker.__init__(SimpleNamespace(), 0, 0, SimpleNamespace())
    assert attribute in vars(worker)


def _whole(cls: type) -> object:
    """A worker of a class of the tables, or of an heir, with all that its table names."""
    worker = object.__new__(cls)
    for kind in cls.__mro__:
        for name in invariants.BY_CLASS.get(kind.__name__, {}):
            setattr(worker, name, 1 if name != "_draft_worker" else None)
    worker._hosts_draft = False
    if cls is CLASSES["MultiLayerEagleWorkerV2"] or cls in HEIRS.values():
        worker._draft_worker = SimpleNamespace()
    return worker


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        (name, attribute)
        for name in CLASSES
        for attribute, need in invariants.BY_CLASS[name].items()
        if need is attributes.ALWAYS
    ],
    ids=lambda value: value,
)
def test_the_check_names_what_is_none(name: str, attribute: str) -> None:
    worker = _whole(CLASSES[name])
    setattr(worker, attribute, None)
    with pytest.raises(invariants.IncompleteWorkerError, match=rf"{name}\.{attribute}\b"):
        invariants.check(worker)


SHARING = ("index_share_for_mtp_iteration", "seed_dsa_topk_from_draft_extend")


@pytest.mark.parametrize("name", ["EagleDraftWorker", "StandaloneDraftWorker"])
@pytest.mark.parametrize(
    ("config", "missing"), [({}, SHARING), ({SHARING[0]: True}, SHARING), ({SHARING[0]: None}, ())]
)
def test_a_null_in_the_drafts_config_is_no_missing_attribute(
    name: str, config: dict[str, object], missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`index_share_for_mtp_iteration: null` becomes None by upstream's own line, and means no."""
    _host(monkeypatch, {})
    worker = _whole({**CLASSES, **HEIRS}[name])
    hf_config = SimpleNamespace(**config)
    worker.draft_runner = SimpleNamespace(model_config=SimpleNamespace(hf_config=hf_config))
    worker.topk = 1
    eagle_worker_v2.EagleDraftWorker._init_dsa_index_share_state(worker)
    assert invariants._missing(worker) == []
    for attribute in SHARING:
        setattr(worker, attribute, None)
    assert invariants._missing(worker) == [f"{name}.{attribute}" for attribute in missing]


@pytest.mark.parametrize("name", HEIRS)
def test_an_heir_is_held_to_the_table_of_its_parent(name: str) -> None:
    worker = _whole(HEIRS[name])
    if name in attributes.LEFT_OUT:
        for attribute in attributes.LEFT_OUT[name]:
            delattr(worker, attribute)
    assert invariants._missing(worker) == []
    worker.plan_stream_ctx = None
    with pytest.raises(invariants.IncompleteWorkerError, match=rf"{name}\.plan_stream_ctx\b"):
        invariants.check(worker)
    if "WorkerV2" in name:
        worker.plan_stream_ctx, worker._draft_worker = 1, None
        with pytest.raises(invariants.IncompleteWorkerError, match=rf"{name}\._draft_worker\b"):
            invariants.check(worker)


def _set_in(*functions: object) -> set[str]:
    """The attributes of self that classes or functions set."""
    return {
        node.attr
        for function in functions
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def _inherited(cls: type) -> set[str]:
    """What the stages set that a class inherits, all but the constructors."""
    stages = {
        name: method
        for kind in reversed(cls.__mro__[1:])
        if kind.__module__.startswith("sglang.srt.speculative")
        for name, method in vars(kind).items()
        if inspect.isfunction(method) and name != "__init__"
    }
    return _set_in(*stages.values())


@pytest.mark.parametrize("name", [*HEIRS, "MultiLayerEagleDraftWorker", "MultiLayerEagleWorkerV2"])
def test_what_a_class_must_have_is_set_by_it_or_by_a_stage_that_it_inherits(name: str) -> None:
    """Else a healthy server would be refused; and an heir is not let off what it does set."""
    cls = {**CLASSES, **HEIRS}[name]
    table = next(
        invariants.BY_CLASS[k.__name__] for k in cls.__mro__ if k.__name__ in invariants.BY_CLASS
    )
    required = {n for n, need in table.items() if need is not attributes.MAY}
    left_out = attributes.LEFT_OUT.get(name, frozenset())
    own = _set_in(cls)
    assert required - left_out <= own | _inherited(cls)
    assert left_out & own <= {"adaptive_controller"}  # set to None


class TritonAttnBackend:
    """Of the name of one with which upstream captures the draft-extend."""


class Derived(TritonAttnBackend):
    pass


class TorchNativeAttnBackend:
    pass


GRAPHS = "cuda_graph_runner"
EXTEND_GRAPHS = "cuda_graph_runner_for_draft_extend"


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({}, {GRAPHS, EXTEND_GRAPHS}),
        ({"backend": Derived()}, {GRAPHS, EXTEND_GRAPHS}),
        ({"backend": TorchNativeAttnBackend()}, {GRAPHS}),
        ({"backend": None}, {GRAPHS}),
        ({"steps": 1}, {EXTEND_GRAPHS}),
        ({"steps": 0}, {EXTEND_GRAPHS}),
        ({"extend_off": True}, {GRAPHS}),
        ({"cuda": False}, {GRAPHS}),  # ROCm, XPU, NPU: which extends are captured is their matter
        ({"device": "cpu"}, set()),
        ({"disabled": True}, set()),
        ({"model_impl": "mindspore"}, set()),
        ({"foreign": True}, set()),
    ],
)
def test_a_graph_must_be_there_where_upstream_captures_it(
    what: dict[str, object], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A capture that was skipped decodes eagerly, at a fraction of the speed, and says nothing."""
    _host(monkeypatch, what)
    worker = _whole(CLASSES["EagleDraftWorker"])
    worker.speculative_num_steps = what.get("steps", 3)
    worker.draft_extend_attn_backend = what.get("backend", TritonAttnBackend())
    assert invariants._missing(worker) == []
    worker.cuda_graph_runner = worker.cuda_graph_runner_for_draft_extend = None
    assert set(invariants._missing(worker)) == {f"EagleDraftWorker.{name}" for name in expected}


def _host(monkeypatch: pytest.MonkeyPatch, what: dict[str, object]) -> None:
    """What the conditions read, as `what` has it; a CUDA host with graphs where it says nothing."""
    disabled = bool(what.get("disabled"))
    monkeypatch.setattr(
        sglang.srt.model_executor.cuda_graph_config,
        "check_cuda_graph_backend",
        lambda phase, backend: disabled and (phase, backend) == ("decode", "disabled"),
    )
    model = SimpleNamespace(model_impl=what.get("model_impl", "auto"))
    monkeypatch.setattr(sglang.srt.runtime_context, "get_model", lambda: model)
    disagg = SimpleNamespace(disaggregation_mode=what.get("mode", "null"))
    monkeypatch.setattr(sglang.srt.runtime_context, "get_disagg", lambda: disagg)
    platform = SimpleNamespace(is_out_of_tree=lambda: bool(what.get("foreign")))
    monkeypatch.setattr(sglang.srt.platforms, "current_platform", platform)
    monkeypatch.setattr(sglang.srt.utils, "is_cuda", lambda: bool(what.get("cuda", True)))
    monkeypatch.setattr(sglang.srt.utils, "is_cpu", lambda: what.get("device") == "cpu")
    monkeypatch.setenv("SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH", str(int("extend_off" in what)))


def test_the_backends_of_captured_draft_extends_are_upstreams() -> None:
    """On CUDA; one that upstream adds or drops has to be looked at."""
    source = textwrap.dedent(
        inspect.getsource(eagle_worker_v2.EagleDraftWorker._capture_cuda_graphs)
    )
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Assign(targets=[ast.Name(id="graph_supported_backend_types")], value=value):
                found |= {name.id for name in ast.walk(value) if isinstance(name, ast.Name)}
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="graph_supported_backend_types")),
                args=[ast.Name(id=name)],
            ):
                found.add(name)
    assert found == attributes.EXTENDS_IN_A_GRAPH


def _adaptive(
    monkeypatch: pytest.MonkeyPatch, batch_sizes: list[int] | None, **what: object
) -> SimpleNamespace:
    """A worker with states of 0, 1 and 3 draft steps, whole."""
    _host(monkeypatch, {"disabled": batch_sizes is None, **what})
    parts = {
        "target_attn_backend": 1,
        "target_graph_runner": 1,
        "draft_attn_backend": 1,
        "cuda_graph_runner": 1,
    }
    states = {steps: SimpleNamespace(**parts) for steps in (0, 1, 3)}
    return SimpleNamespace(
        _draft_worker=None,
        adaptive_controller=SimpleNamespace(
            candidate_steps=list(states),
            _states=states,
            params=SimpleNamespace(cuda_graph_bs_for_step=lambda steps: batch_sizes),
        ),
    )


@pytest.mark.parametrize(
    ("batch_sizes", "expected"),
    [
        (
            [1, 8],
            {
                0: {"target_attn_backend", "target_graph_runner"},
                1: {"target_attn_backend", "target_graph_runner"},
                3: {
                    "target_attn_backend",
                    "target_graph_runner",
                    "draft_attn_backend",
                    "cuda_graph_runner",
                },
            },
        ),
        (
            [],  # of no batch size that is captured
            {
                0: {"target_attn_backend"},
                1: {"target_attn_backend"},
                3: {"target_attn_backend", "draft_attn_backend"},
            },
        ),
        (
            None,  # graphs are disabled
            {
                0: {"target_attn_backend"},
                1: {"target_attn_backend"},
                3: {"target_attn_backend", "draft_attn_backend"},
            },
        ),
    ],
    ids=["graphs", "no batch size", "disabled"],
)
def test_a_state_of_adaptive_speculation_that_is_half_built_is_named(
    batch_sizes: list[int] | None, expected: dict[int, set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = _adaptive(monkeypatch, batch_sizes)
    invariants.check(worker)
    for steps, state in worker.adaptive_controller._states.items():
        named = set()
        for part in vars(state):
            kept = getattr(state, part)
            setattr(state, part, None)
            try:
                invariants.check(worker)
            except invariants.IncompleteWorkerError as error:
                assert f"{part} of the state of {steps} draft steps" in str(error)
                named.add(part)
            setattr(state, part, kept)
        assert named == expected[steps]
    del worker.adaptive_controller._states[1]
    with pytest.raises(invariants.IncompleteWorkerError, match="the state of 1 draft steps"):
        invariants.check(worker)


def test_the_attribute_of_the_incident_would_be_found() -> None:
    """`spec_disable_batch_threshold` was read in forward_batch_generation and set nowhere."""
    source = inspect.getsource(CLASSES["EAGLEWorkerV2"]).replace(
        "cycle.launched(batch)", "self.spec_disable_batch_threshold"
    )
    assert "spec_disable_batch_threshold" in _touched(source) - set(attributes.WORKER)


def test_without_a_list_of_batch_sizes_every_state_has_its_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Upstream passes None on where --cuda-graph-bs-decode is not given, and captures all sizes."""
    worker = _adaptive(monkeypatch, None, disabled=False)
    worker.adaptive_controller._states[3].cuda_graph_runner = None
    worker.adaptive_controller._states[1].target_graph_runner = None
    with pytest.raises(invariants.IncompleteWorkerError) as error:
        invariants.check(worker)
    assert "cuda_graph_runner of the state of 3 draft steps" in str(error.value)
    assert "target_graph_runner of the state of 1 draft steps" in str(error.value)


def test_a_prefill_server_with_decode_graphs_needs_no_graph_of_the_verify(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Upstream does not capture it there at start, whatever backend was asked for."""
    worker = _adaptive(monkeypatch, [1, 8], mode="prefill")
    worker.adaptive_controller._states[3].target_graph_runner = None
    invariants.check(worker)
    worker.adaptive_controller._states[3].cuda_graph_runner = None
    with pytest.raises(invariants.IncompleteWorkerError, match="cuda_graph_runner of the state"):
        invariants.check(worker)
