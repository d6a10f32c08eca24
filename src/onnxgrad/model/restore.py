"""Biases of zero that an exporter left out of the file, though the network has them as parameters."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import helper

from onnxgrad.model import origin
from onnxgrad.model.change import Change
from onnxgrad.model.sharing import FLOATS, fresh
from onnxgrad.model.source import OriginalModel
from onnxgrad.notes import Note

_LAYERS = ("Conv", "ConvTranspose", "Gemm")
_MEAN = "running_mean"


class Restore(Change):
    """Gives a layer the bias that the call it was made from had, where the file has none.

    PyTorch's newer exporter removes biases that are all zeros, as in a new network they often are; the
    call that it notes beside the node still names them.
    """

    def __init__(self) -> None:
        self.names: list[str] = []

    def rewrite(self, source: OriginalModel) -> None:
        graph = source.proto.graph
        taken = {t.name for t in graph.initializer} | {o for n in graph.node for o in n.output}
        made: dict[tuple[str, int], str] = {}  # a layer that is called twice has one bias
        for node in graph.node:
            bare = len(node.input) < 3 or not node.input[2]
            if node.op_type not in _LAYERS or node.domain or not bare or len(node.input) < 2:
                continue
            token, weight = _bias_of(node), source.tensors.get(node.input[1])
            if not token or weight is None or weight.data_type not in FLOATS:
                continue
            size = _channels(node, list(weight.dims))
            if (token, size) not in made:
                made[token, size] = name = fresh(_name(token, node), taken)
                taken.add(name)
                graph.initializer.append(_zeros(name, weight.data_type, size))
            del node.input[2:]
            node.input.append(made[token, size])
        self.names += made.values()
        source.refresh()

    def describe(self) -> Iterable[Note]:
        if self.names:
            count = len(self.names)
            what = "a bias of zeros is" if count == 1 else f"{count} biases of zeros are"
            shown = ", ".join(map(repr, self.names[:3])) + (" …" if count > 3 else "")
            yield Note(
                "restored",
                self.names[0],
                f"{what} in the network but not in the file, and added: {shown}",
            )


def _bias_of(node: onnx.NodeProto) -> str:
    """Return the bias in the call that became a layer, as the exporter mangles it; "" where it had none.

    It is the third argument of linear layers, convolutions and the normalisations that were folded into them, whatever
    the network calls it. A normalisation without one leaves its mean as a bias behind.
    """
    target, values = origin.call_of(origin.properties(node.metadata_props))
    place = 0 if target == "addmm" else 2
    found = next((v for v in values[place : place + 1] if v.startswith("p_")), "")
    if not found and "batch_norm" in target:
        found = next((v for v in values if v.endswith(_MEAN)), "")
    return found


def _name(token: str, node: onnx.NodeProto) -> str:
    """Return the bias's own name: beside its weight's, which the file has, or by the module that is called."""
    beside = node.input[1].removesuffix("weight") + "bias"
    if "p_" + beside.replace(".", "_").lower() == token:
        return beside
    metadata = origin.properties(node.metadata_props)
    return origin.unmangled(token, origin.scope_of(node.name, metadata)).replace(_MEAN, "bias")


def _zeros(name: str, kind: int, size: int) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=kind, dims=[size])
    tensor.raw_data = bytes(size * helper.tensor_dtype_to_np_dtype(kind).itemsize)
    return tensor


def _channels(node: onnx.NodeProto, dims: list[int]) -> int:
    attributes = {a.name: a.i for a in node.attribute}
    if node.op_type == "Gemm":
        return dims[0] if attributes.get("transB") else dims[1]
    return dims[0] if node.op_type == "Conv" else dims[1] * attributes.get("group", 1)
