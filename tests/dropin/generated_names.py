"""Print the names that every block of onnxblock gives to its result, as JSON.

Runs in the old package's environment with `onnxruntime.training` as its argument; its output is
tests/golden/dropin/generated_names.json. `names` runs in ours, too.
"""

import importlib
import json
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def model():
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 4]) for n in "ab"]
    sequences = [
        helper.make_tensor_sequence_value_info(n, TensorProto.FLOAT, None) for n in ("s", "t")
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    graph = helper.make_graph(nodes, "g", [*values, *sequences], [y])
    opsets = [
        helper.make_opsetid(d, v) for d, v in (("", 15), ("ai.onnx.ml", 3), ("com.microsoft", 1))
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def cases(onnxblock):
    """name -> (a block, the names that it is called with)"""
    blocks, loss, optim = onnxblock.blocks, onnxblock.loss, onnxblock.optim
    found = {}
    for kind in ("Add", "Sub", "Mul", "Div"):
        found[kind] = getattr(blocks, kind)(), ["a", "b"]
    for kind in ("ReduceMean", "ReduceSum", "Sigmoid", "Log", "Neg", "Abs"):
        found[kind] = getattr(blocks, kind)(), ["a"]
    found["Pow"] = blocks.Pow(2.0), ["a"]
    found["Constant"] = blocks.Constant(1.0), []
    found["SequenceConstruct"] = blocks.SequenceConstruct(), ["a", "b"]
    found["InputLike"] = blocks.InputLike("a"), []
    found["Cast"] = blocks.Cast(TensorProto.INT64), ["a"]
    found["Linear"] = blocks.Linear(4, 3), ["a"]
    found["Linear without bias"] = blocks.Linear(4, 3, bias=False), ["a"]
    one = np.ones(1, np.float32)
    for reduction in ("mean", "sum"):
        for kind in ("MSELoss", "L1Loss", "BCEWithLogitsLoss", "CrossEntropyLoss"):
            found[f"{kind} {reduction}"] = getattr(loss, kind)(reduction=reduction), ["y"]
    found["BCEWithLogitsLoss with weights"] = (
        loss.BCEWithLogitsLoss(weight=one, pos_weight=one), ["y"],
    )  # fmt: skip
    found["CrossEntropyLoss with a weight"] = loss.CrossEntropyLoss(weight=one), ["y"]
    found["ClipGradNorm"] = optim.ClipGradNorm(1.0), ["s"]
    return found


def names(root):
    onnxblock = importlib.import_module(f"{root}.onnxblock")
    utils = importlib.import_module(f"{root}.onnxblock._graph_utils")
    found = {}
    for name, (block, inputs) in cases(onnxblock).items():
        utils._GRAPH_TOKEN = 0
        with onnxblock.base(model()):
            found[name] = block(*inputs)
    weight = numpy_helper.from_array(np.ones(3, np.float32), "w")
    for kind in ("AdamW", "SGD"):
        utils._GRAPH_TOKEN = 0
        with onnxblock.empty_base(15):
            found[kind] = getattr(onnxblock.optim, kind)()(([weight], []))
    return found


if __name__ == "__main__":
    assert onnx.__version__
    json.dump(names(sys.argv[1]), sys.stdout, indent=1, sort_keys=True)
