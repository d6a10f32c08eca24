"""The harnesses of fuzz/files: good files go through, and what they look for is seen."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "fuzz" / "files"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_adapters_that_nobody_changed_are_taken():
    import adapters

    for kind, files in adapters.starts():
        assert adapters.taken(kind, files) == f"{kind} taken", files.keys()


def test_a_changed_adapter_is_another_file():
    import random

    import adapters

    for number, (_, files) in enumerate(adapters.starts()):
        changed = [adapters.changed(files, random.Random(f"{number} {n}")) for n in range(20)]
        assert sum(c != files for c in changed) >= 15
        assert all(c.keys() == files.keys() for c in changed)


def test_the_two_ways_to_a_gradient_agree_and_a_difference_is_seen(monkeypatch):
    import differential
    import onnx_ir as ir
    import seeds

    data = seeds.models()[0].SerializeToString()
    inputs = {"x": np.ones((2, 3), np.float32)}
    assert differential.compare(data, inputs) == "equal"
    right = differential.gradient

    def wrong(data, ops, kind):
        model = right(data, ops, kind)
        if ops == "standard":  # the gradient of x a millionth too large
            made = next(v for v in model.graph.outputs if v.name == "w_grad")
            factor = ir.tensor(np.array(1.000001, kind))
            constant = ir.node("Constant", [], {"value": factor})
            scaled = ir.node("Mul", [made, constant.outputs[0]])
            model.graph.extend([constant, scaled])
            position = [v.name for v in model.graph.outputs].index("w_grad")
            model.graph.outputs[position] = scaled.outputs[0]
            made.name, scaled.outputs[0].name = "w_grad_before", "w_grad"
            scaled.outputs[0].type, scaled.outputs[0].shape = made.type, made.shape
        return model

    monkeypatch.setattr(differential, "gradient", wrong)
    with pytest.raises(differential.Differs, match=r"w_grad: .* differ by 1\.0e-06"):
        differential.compare(data, inputs)


def test_a_refusal_that_changes_something_is_a_finding(monkeypatch):
    """`targets.guarded` tells our errors from all others."""
    import targets

    from onnxgrad.errors import InternalError, ModelError

    def fails(error):
        raise error

    assert isinstance(targets.guarded("x", fails, ModelError("no")), ModelError)
    for foreign in (KeyError("a"), InternalError("a bug"), RuntimeError("x")):
        with pytest.raises(targets.Foreign):
            targets.guarded("x", fails, foreign)


def test_an_input_of_a_number_is_the_same_after_any_other():
    import random

    import mutate

    text = b'{"a": [1, {"b": null}], "c": "d"}'
    alone = mutate.mutate_json(text, random.Random(300))
    before = repr(mutate.VALUES)
    for number in range(300):
        mutate.mutate_json(text, random.Random(number))
    assert repr(mutate.VALUES) == before
    assert mutate.mutate_json(text, random.Random(300)) == alone


def test_a_call_of_every_operator_can_be_drawn(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    import fuzz_sessions

    from onnxgrad.contracts import contracts

    for contract in contracts().values():
        inputs, _, outputs = fuzz_sessions.Maker(contract, np.random.default_rng(0)).call()
        assert set(inputs) <= {t.name for t in contract.inputs}
        assert set(outputs) <= {t.name for t in contract.outputs}
    sys.modules.pop("fuzz_sessions")
