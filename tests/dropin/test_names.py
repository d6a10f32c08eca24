"""Every public name of onnxruntime.training's three modules exists, with the same parameters."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from dropin.record_names import MODULES, describe_module

OLD = json.loads((Path(__file__).parents[1] / "golden" / "dropin" / "names.json").read_text())


def pairs() -> list[tuple[str, str]]:
    return [(module, name) for module, names in OLD.items() for name in names]


@pytest.mark.parametrize(("module", "name"), pairs())
def test_the_name_is_there_with_the_same_signature(module, name):
    ours = describe_module(importlib.import_module(f"onnxgrad.{module}"), "onnxgrad")
    assert name in ours
    old = OLD[module][name]
    if isinstance(old, dict):
        for member, signature in old.items():
            assert ours[name].get(member) == signature, member
    else:
        assert ours[name] == old


def test_every_module_was_recorded():
    assert sorted(OLD) == sorted(MODULES)
    assert sum(map(len, OLD.values())) > 60


def test_they_are_names_of_the_package():
    import onnxgrad

    assert onnxgrad.artifacts.LossType.MSELoss.value == 1
    assert onnxgrad.api.Module
    assert onnxgrad.onnxblock.blocks
    assert {"artifacts", "api", "onnxblock"} <= set(dir(onnxgrad))
