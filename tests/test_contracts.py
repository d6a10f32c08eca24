"""Our contracts are the old system's: order and optionality of inputs and outputs, attributes and their defaults.

`golden/upstream_schemas.json` holds what onnxruntime-training 1.19.2 registers. Every difference is listed here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from onnxgrad.contracts import contracts, snake_case

ROOT = Path(__file__).resolve().parents[1]
UPSTREAM = json.loads((ROOT / "tests" / "golden" / "upstream_schemas.json").read_text())

# Positions count in a graph, names do not; ours say what is meant.
RENAMED = {
    ("LogSoftmaxGrad", "X"): "Y",  # the kernel reads the output of LogSoftmax
    ("LogSoftmaxGrad_13", "X"): "Y",
    ("SigmoidGrad", "X"): "Y",
    ("TanhGrad", "X"): "Y",
    ("LeakyReluGrad", "X"): "Y",
    ("ConvGrad", "dB"): "dBias",
    ("ConvTransposeGrad", "dB"): "dBias",
}

# Inputs that only ours have; they come last. The pooling gradients need the shape of X, which the old kernels took from
# the static shape of their output; to the gradients of normalisations another gradient can be added on the way.
ADDED = {
    "LayerNormalizationGrad": ["added"],
    "SimplifiedLayerNormalizationGrad": ["added"],
    "LSTMGrad": ["P"],
    "MaxPoolGrad": ["shape", "Y"],
    "AveragePoolGrad": ["shape"],
    "ResizeGrad": ["sizes"],
}

# Optional in the old schema, but not in the old kernel: it fails without them.
NEEDED = {"LSTMGrad": {"HAll", "CAll", "IOFC"}, "GRUGrad": {"HAll", "ZRH"}}

# Required in the old schema; here they can be left out.
RELAXED = {"FakeQuant": {"mask"}}


@pytest.mark.parametrize("name", [n for n in UPSTREAM if n in contracts()])
def test_contract_is_the_old_one(name):
    ours, theirs = contracts()[name], UPSTREAM[name]
    for kind, tensors in (("inputs", ours.inputs), ("outputs", ours.outputs)):
        expected = [(RENAMED.get((name, n), n), presence) for n, _, presence in theirs[kind]]
        needed, relaxed = NEEDED.get(name, set()), RELAXED.get(name, set())
        optional = {t.name for t in tensors if t.optional} - relaxed | needed
        got = [(t.name, "optional" if t.name in optional else "required") for t in tensors]
        if kind == "inputs" and name in ADDED:
            assert [n for n, _ in got[len(expected) :]] == ADDED[name]
            got = got[: len(expected)]
        assert [p for _, p in got] == [p for _, p in expected], kind
        if name not in FREELY_NAMED:
            assert got == expected, kind
    for attribute, spec in theirs["attributes"].items():
        assert attribute in [a.name for a in ours.attributes]
        default = next(a.default for a in ours.attributes if a.name == attribute)
        if spec.get("default") is not None:
            assert default == pytest.approx(spec["default"])


# The recurrent operators follow ONNX's own spelling (H0, HAll, grad_Ht) instead of the old system's.
FREELY_NAMED = {"GRUTraining", "GRUGrad", "LSTMTraining", "LSTMGrad"}


@pytest.mark.parametrize("contract", contracts().values(), ids=lambda c: c.name)
def test_every_contract_is_documented(contract):
    assert contract.summary.endswith(".")
    assert contract.formula
    assert set(contract.own_accuracies) <= {t.name for t in contract.outputs}
    for accuracy in (contract.accuracy, *contract.own_accuracies.values()):
        single, double = accuracy.float32, accuracy.float64
        assert single > double > 0 or single == double == 0  # a choice of inputs is exact
    for tensor in (*contract.inputs, *contract.outputs, *contract.attributes):
        assert tensor.doc, tensor.name
        assert not tensor.doc.endswith(".")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("ReluGrad", "relu_grad"), ("SoftmaxGrad_13", "softmax_grad_13"), ("BiasGeluGrad_dX", "bias_gelu_grad_dx"),
     ("LSTMGrad", "lstm_grad"), ("GRUTraining", "gru_training"), ("GatherNDGrad", "gather_nd_grad")],
)  # fmt: skip
def test_names_on_numpy(name, expected):
    assert snake_case(name) == expected


def test_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "make_docs.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


NAMES = {
    "ReluGrad": "relu_grad", "LSTMGrad": "lstm_grad", "GRUTraining": "gru_training", "LogSoftmaxGrad_13":
    "log_softmax_grad_13", "BiasGeluGrad_dX": "bias_gelu_grad_dx", "MatMulBnb4Grad": "mat_mul_bnb4_grad",
    "MatMulNBitsGrad": "mat_mul_n_bits_grad", "ConvGrad": "conv_grad", "A": "a", "aB": "a_b", "AB": "ab",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_of_functions(name):
    assert snake_case(name) == NAMES[name]
