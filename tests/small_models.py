"""A small network, whole and with planted faults, and how to call the command line."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxgrad.cli import main

RNG = np.random.default_rng(3)


def weights(**arrays):
    return [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()]


def model_of(
    nodes,
    initializers,
    *,
    inputs=(("x", ["N", 4]),),
    outputs=(("y", ["N", 2]),),
    imports=(("", 17),),
    kind=TensorProto.FLOAT,
):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def mlp() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "layer1.weight"], ["a"], name="first"),
        helper.make_node("Add", ["a", "layer1.bias"], ["b"]),
        helper.make_node("Tanh", ["b"], ["c"], name="squash"),
        helper.make_node("MatMul", ["c", "layer2.weight"], ["y"], name="second"),
    ]
    arrays = {"layer1.weight": (4, 8), "layer1.bias": (8,), "layer2.weight": (8, 2)}
    return model_of(nodes, weights(**{n: RNG.normal(size=s) for n, s in arrays.items()}))


def with_node(op_type: str, domain: str = "", **attributes) -> onnx.ModelProto:
    """The MLP with Tanh replaced by another operator."""
    model = mlp()
    model.graph.node[2].CopyFrom(
        helper.make_node(op_type, ["b"], ["c"], name="culprit", domain=domain, **attributes)
    )
    model.graph.value_info.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, ["N", 8]))
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


def run(capsys, *arguments) -> tuple[int, str, str]:
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err
