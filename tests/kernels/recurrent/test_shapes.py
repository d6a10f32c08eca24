"""Every dim of every input of the recurrent operators, one too large: refused in both hosts, with the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from ort_models import node_model

import onnxgrad
from onnxgrad import kernels
from onnxgrad.contracts import contracts

SIZES = {"S": 3, "N": 2, "I": 4, "H": 5, "D": 1}
OPS = ("LSTMTraining", "LSTMGrad", "GRUTraining", "GRUGrad")


def dims(tensor) -> list[int]:
    """`[D, 4*H, I]` as numbers."""
    factors = [axis.strip().split("*") for axis in tensor.dims.strip("[]").split(",")]
    return [int(np.prod([SIZES.get(f) or int(f) for f in axis])) for axis in factors]


def inputs_of(op: str) -> dict[str, np.ndarray]:
    """Every input, optional ones too, with consistent shapes."""
    types = {"T": np.float32, "int32": np.int32}
    return {t.name: np.zeros(dims(t), types[t.type]) for t in contracts()[op].inputs}


# X gives S, N and I their numbers: a larger one is refused where another input disagrees.
SHAPES = [
    pytest.param(op, tensor.name, axis, id=f"{op}: {tensor.name} axis {axis}")
    for op in OPS
    for tensor in contracts()[op].inputs
    for axis in range(len(dims(tensor)))
    if (op, tensor.name, axis) not in {("LSTMTraining", "X", 0), ("GRUTraining", "X", 0)}
]


def enlarged(op: str, name: str, axis: int) -> dict[str, np.ndarray]:
    inputs = inputs_of(op)
    shape = list(inputs[name].shape)
    shape[axis] += 1
    return {**inputs, name: np.zeros(shape, inputs[name].dtype)}


@pytest.mark.parametrize("op", OPS)
def test_consistent_shapes_are_taken(op):
    assert getattr(kernels, contracts()[op].python_name)(**inputs_of(op))


@pytest.mark.parametrize(("op", "name", "axis"), SHAPES)
def test_a_dim_that_does_not_fit_is_refused_in_both_hosts(op, name, axis):
    inputs = enlarged(op, name, axis)
    contract = contracts()[op]
    with pytest.raises(
        onnxgrad.ContractError, match=rf"^{op}: input \w+ has shape .*, expected "
    ) as error:
        getattr(kernels, contract.python_name)(**inputs)
    text = str(error.value)
    blamed = text.split()[2]
    assert str(list(inputs[blamed].shape)) in text
    assert name in text, "the message names the input that was enlarged"

    model = node_model(contract, inputs, {}, [t.name for t in contract.outputs])
    with pytest.raises(Exception, match="has shape") as error:
        onnxgrad.session(model).run(None, inputs)
    assert text in str(error.value)
