"""Small models with what exporters do to new networks, built by hand: no PyTorch needed."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(5)
CALL = "pkg.torch.onnx.fx_node"
SCOPES = "pkg.torch.onnx.name_scopes"
FOLDED = "pkg.onnxscript.optimizer.folded_from"
KIND = "pkg.torch.export.graph_signature.InputSpec.kind"


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


_CALLS = {"Gemm": "linear", "LayerNormalization": "layer_norm"}


def node(op: str, inputs: str, output: str, name: str = "", call: str = "", **attributes):
    """A node; `call` is what PyTorch's newer exporter notes beside it: scope, then parameters."""
    made = helper.make_node(op, inputs.split(), [output], name=name or output, **attributes)
    if call:
        scope, *parameters = call.split()
        names = [f"%p_{scope.replace('.', '_')}_{p}" for p in parameters]
        target = f"target=torch.ops.aten.{_CALLS.get(op, op.lower())}.default"
        arguments = ", ".join([f"%{inputs.split()[0]}", *names])
        called = f"%{output} = call_function[{target}](args = ({arguments}), kwargs = {{}})"
        values = {CALL: called, SCOPES: str(["", scope, "call"])}
        for key, value in values.items():
            made.metadata_props.add(key=key, value=value)
    return made


def model(nodes, tensors, x=("N", 4), y=None, kind=TensorProto.FLOAT, producer="pytorch", infos=()):
    """A model of one input `x` and one output `y`; `infos` are name -> metadata of tensors."""
    inputs = [helper.make_tensor_value_info("x", kind, x)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)]
    initializers = [numpy_helper.from_array(a, n) for n, a in tensors.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    for name, metadata in dict(infos).items():
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, tensors[name].shape)
        for key, value in metadata.items():
            info.metadata_props.add(key=key, value=value)
        graph.value_info.append(info)
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10, producer_name=producer
    )
    onnx.checker.check_model(made)
    return made


def torchscript_norms() -> onnx.ModelProto:
    """Two layers with batch normalisation: four tensors of ones and four of zeros are two."""
    copies = {
        "n1.running_var": "n1.weight", "n2.weight": "n1.weight", "n2.running_var": "n1.weight",
        "n1.running_mean": "n1.bias", "n2.bias": "n1.bias", "n2.running_mean": "n1.bias",
    }  # fmt: skip
    nodes = [node("Identity", source, name, f"Identity_{name}") for name, source in copies.items()]
    for i, x in (("1", "x"), ("2", "b1")):
        parts = ("weight", "bias", "running_mean", "running_var")
        norm = " ".join(f"n{i}.{part}" for part in parts)
        nodes.append(node("MatMul", f"{x} w{i}", f"a{i}", f"/l{i}/MatMul"))
        nodes.append(
            node("BatchNormalization", f"a{i} {norm}", f"b{i}", f"/n{i}/BatchNormalization")
        )
    nodes.append(node("MatMul", "b2 head", "y", "/head/MatMul"))
    tensors = {"w1": normal(4, 4), "n1.weight": ones(4), "n1.bias": zeros(4), "w2": normal(4, 4)}
    return model(nodes, {**tensors, "head": normal(4, 3)}, y=("N", 3))


def dynamo_norms() -> onnx.ModelProto:
    """Two LayerNorms whose scales and biases are one tensor each, with the calls beside the nodes."""
    nodes = [
        node("LayerNormalization", "x a.weight a.bias", "h", call="a weight bias"),
        node("MatMul", "h w", "m", call="fc weight"),
        node("LayerNormalization", "m a.weight a.bias", "y", call="b.1 weight bias"),
    ]
    tensors = {"a.weight": ones(4), "a.bias": zeros(4), "w": normal(4, 4)}
    return model(nodes, tensors, y=("N", 4))


def tied_embedding(transposed: bool = False) -> onnx.ModelProto:
    """An embedding whose matrix is the head's too; or its transpose, as a tensor of its own."""
    table = normal(7, 4)
    nodes = [node("Gather", "embed.weight x", "e", "/embed/Gather")]
    tensors = {"embed.weight": table}
    if transposed:
        tensors["onnx::MatMul_9"] = np.ascontiguousarray(table.T)
        nodes.append(node("MatMul", "e onnx::MatMul_9", "y", "/head/MatMul"))
    else:
        nodes += [
            node("Identity", "embed.weight", "head.weight", "Identity_0"),
            node("Transpose", "head.weight", "t", "/head/Transpose", perm=[1, 0]),
            node("MatMul", "e t", "y", "/head/MatMul"),
        ]
    return model(nodes, tensors, x=("N", 5), y=("N", 5, 7), kind=TensorProto.INT64)


def beside(array: np.ndarray, op: str = "Add", name: str = "table", **more) -> onnx.ModelProto:
    """A layer, and a tensor that is added to its result or multiplied with it."""
    width = array.shape[-1]
    nodes = [node("MatMul", "x w", "h", "/l/MatMul"), node(op, f"h {name}", "s", "/s")]
    nodes.append(node("MatMul", "s v", "y", "/o/MatMul"))
    tensors = {"w": normal(4, width), name: array, "v": normal(width, 2)}
    rows = array.shape[-2] if array.ndim > 1 else "N"
    return model(nodes, tensors, x=(rows, 4), y=(rows, 2), **more)


def instance_norm() -> onnx.ModelProto:
    """InstanceNorm with running statistics, as the older exporter writes it: all repeated for every row."""
    parts = ("weight", "bias", "running_mean", "running_var")
    nodes = [node("MatMul", "x w", "h"), node("Reshape", "h one", "r")]
    nodes += [node("Tile", f"n.{part} rows", f"t.{part}") for part in parts]
    norm = " ".join(f"t.{part}" for part in parts)
    nodes.append(node("BatchNormalization", f"r {norm}", "b", "norm"))
    nodes += [node("Reshape", "b back", "f"), node("MatMul", "f head", "y")]
    tensors = {f"n.{part}": normal(4) ** 2 + 0.5 for part in parts}
    tensors |= {"w": normal(4, 12), "head": normal(12, 2), "rows": np.array([2])}
    tensors |= {"one": np.array([1, 8, 3]), "back": np.array([2, 12])}
    return model(nodes, tensors, x=(2, 4), y=(2, 2))
