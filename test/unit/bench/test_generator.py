"""What the load generator does without the packages that upstream imports for other benchmarks."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys

import pytest
from sglang_spec.bench import generator


def test_a_package_that_is_not_there_is_stood_in_for_while_upstream_is_imported() -> None:
    name = "no_such_package_here"
    with generator.stand_in(name):
        module = importlib.import_module(name)
        assert module.load_dataset is None  # so does `from datasets import load_dataset`
    assert name not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)


def test_a_package_that_is_there_is_itself() -> None:
    with generator.stand_in("json"):
        assert importlib.import_module("json") is json
    assert sys.modules["json"] is json
