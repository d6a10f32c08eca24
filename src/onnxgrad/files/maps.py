"""Maps, which scikit-learn's converter puts at the end of classifiers: training sees the tensor in them.

    probabilities → ZipMap → output_probability, a list of {label: probability}

The file that is written has its ZipMap as before; only what is trained has the tensor in its place.
"""

from __future__ import annotations

import onnx

from onnxgrad.errors import ModelError
from onnxgrad.files.paths import printable


def without_maps(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with tensors in the place of maps; the model itself where it has none.

    Raises ModelError for a map that is an input, or that another operator than ZipMap makes.
    """
    graph = proto.graph
    if not any(map(_is_map, (*graph.input, *graph.output, *graph.value_info))):
        return proto
    for value in filter(_is_map, graph.input):
        raise ModelError(
            f"input {printable(value.name)!r} is a map, and only tensors can be trained on: cut the model "
            "behind the operator that makes a tensor of it (DictVectorizer, CastMap)"
        )
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    makers = {name: node for node in copy.graph.node for name in node.output}
    for value in filter(_is_map, copy.graph.output):
        node = makers.get(value.name)
        if node is None or node.op_type != "ZipMap":
            kind = "no operator" if node is None else node.op_type
            raise ModelError(
                f"output {printable(value.name)!r} is a map made by {kind}, and only tensors can be trained on: "
                "take the output out, or convert the model with zipmap=False"
            )
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
        value.type.Clear()
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    kept = [v for v in copy.graph.value_info if not _is_map(v)]
    del copy.graph.value_info[:]
    copy.graph.value_info.extend(kept)
    return copy


def _is_map(value: onnx.ValueInfoProto) -> bool:
    kind = value.type
    while kind.WhichOneof("value") in ("sequence_type", "optional_type"):
        kind = getattr(kind, kind.WhichOneof("value")).elem_type
    return kind.WhichOneof("value") == "map_type"
