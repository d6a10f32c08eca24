"""Networks and rows of the tests of several processes: 45 rows, so that the last batch of 16 is short."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper
from train import problems

ROWS, BATCH = 45, 16


def network(name: str) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    """An MLP, a CNN with batch normalisation, or an LSTM that takes one row per sample; with inputs and labels."""
    problem = getattr(problems, name)()
    model = problem.model()
    axis = 1 if name == "lstm" else 0
    x = np.concatenate([np.moveaxis(b[0], axis, 0) for b in problem.batches])[:ROWS]
    y = np.concatenate([b[1] for b in problem.batches])[:ROWS]
    return (_rows_first(model) if name == "lstm" else model), x, y


def _rows_first(model: onnx.ModelProto) -> onnx.ModelProto:
    for node in model.graph.node:
        node.input[:] = ["turned" if name == "x" else name for name in node.input]
    model.graph.node.insert(0, helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0, 2]))
    steps, _, width = model.graph.input[0].type.tensor_type.shape.dim
    info = helper.make_tensor_value_info(
        "x", onnx.TensorProto.FLOAT, ["N", steps.dim_value, width.dim_value]
    )
    model.graph.input[0].CopyFrom(info)
    return model
