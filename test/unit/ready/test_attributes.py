"""No attribute of an EAGLE worker can be missing: declared first, checked last.

The tables of `invariants` are held against the workers' source, so an attribute that upstream
(or a patch) adds has to be declared, and one that is taken out of a table is named here.
"""

from __future__ import annotations

import ast
import inspect
from types import SimpleNamespace

import pytest
from sglang.srt.spec_hardening import invariants
from sglang.srt.speculative import eagle_worker_v2
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker, EagleDraftWorkerBase

CLASSES = {
    "EagleDraftWorker": eagle_worker_v2.EagleDraftWorker,
    "EAGLEWorkerV2": eagle_worker_v2.EAGLEWorkerV2,
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


DECLARED = [(name, attribute) for name in CLASSES for attribute in invariants.BY_CLASS[name]]


@pytest.mark.parametrize(("name", "attribute"), DECLARED, ids=lambda value: value)
def test_a_constructor_that_fails_in_its_first_call_leaves_every_attribute(
    name: str, attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def throw(self: object) -> None:
        raise RuntimeError("first call")

    base = EagleDraftWorkerBase if name == "EagleDraftWorker" else BaseSpecWorker
    monkeypatch.setattr(base, "__init__", throw)
    worker = object.__new__(CLASSES[name])
    with pytest.raises(RuntimeError, match="first call"):
        worker.__init__(SimpleNamespace(), 0, 0, SimpleNamespace())
    assert attribute in vars(worker)


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        (name, attribute)
        for name in CLASSES
        for attribute, need in invariants.BY_CLASS[name].items()
        if need is invariants.ALWAYS
    ],
    ids=lambda value: value,
)
def test_the_check_names_what_is_none(name: str, attribute: str) -> None:
    worker = object.__new__(CLASSES[name])
    for other in invariants.BY_CLASS[name]:
        setattr(worker, other, 1 if other != "_draft_worker" else None)
    worker._hosts_draft = False
    setattr(worker, attribute, None)
    with pytest.raises(invariants.IncompleteWorkerError, match=rf"{name}\.{attribute}\b"):
        invariants.check(worker)


def test_the_attribute_of_the_incident_would_be_found() -> None:
    """`spec_disable_batch_threshold` was read in forward_batch_generation and set nowhere."""
    source = inspect.getsource(CLASSES["EAGLEWorkerV2"]).replace(
        "cycle.launched(batch)", "self.spec_disable_batch_threshold"
    )
    assert "spec_disable_batch_threshold" in _touched(source) - set(invariants.WORKER)
