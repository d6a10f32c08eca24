"""Single-node models, so that a case can be run in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from cases.case import Case
from onnx import helper

from onnxgrad.contracts import DOMAIN, Contract


def for_this_onnxruntime(attributes: dict) -> dict:
    """Before 1.25 a custom operator gets no list of strings: `activations` travels as one string too."""
    version = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
    if version >= (1, 25) or not attributes.get("activations"):
        return attributes
    return {**attributes, "activations_text": ",".join(attributes["activations"])}


def node_model(
    contract: Contract, inputs: dict[str, np.ndarray], attributes, wanted, *, name="node"
) -> onnx.ModelProto:
    """A model of one node with the given inputs; absent ones are left out, shapes stay open."""
    names = [t.name if t.name in inputs else "" for t in contract.inputs]
    while names and not names[-1]:
        names.pop()
    outputs = [t.name if t.name in wanted else "" for t in contract.outputs]
    while outputs and not outputs[-1]:
        outputs.pop()
    attributes = for_this_onnxruntime(attributes)
    node = helper.make_node(contract.name, names, outputs, name=name, domain=DOMAIN, **attributes)
    dtype = next(
        (
            helper.np_dtype_to_tensor_dtype(inputs[t.name].dtype)
            for t in contract.inputs
            if t.type == "T" and t.name in inputs
        ),
        onnx.TensorProto.FLOAT,
    )
    types = {"int64": onnx.TensorProto.INT64, "bool": onnx.TensorProto.BOOL}
    graph = helper.make_graph(
        [node],
        contract.name,
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(inputs[n].dtype), None)
            for n in names
            if n
        ],
        [
            helper.make_tensor_value_info(t.name, types.get(t.type, dtype), None)
            for t in contract.outputs
            if t.name in outputs
        ],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def run_onnxruntime(case: Case, dtype, *, threads=1) -> dict[str, np.ndarray]:
    """The case's node in a stock session."""
    import onnxgrad

    inputs = case.inputs(dtype)
    model = node_model(case.contract, inputs, case.attributes, case.wanted())
    session = onnxgrad.session(model, threads=threads)
    return dict(zip(case.wanted(), session.run(list(case.wanted()), inputs), strict=True))
