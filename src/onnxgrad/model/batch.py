"""A batch of a fixed size in the file, made free for training; the written file has its own size again."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import numpy_helper

from onnxgrad.model.change import Change, Draft
from onnxgrad.model.source import OriginalModel
from onnxgrad.notes import Note

NAME = "batch"
_DECLARED = ("input", "output", "value_info")


class FreeBatch(Change):
    """Lets every input take any number of rows, where the file says `size`.

    Shapes that Reshape nodes were given are freed in their first place. Whether the graph then computes
    the same for every row is for a run to say: a state of a fixed size, for one, cannot be freed.
    """

    def __init__(self, size: int):
        self.size = size
        self._before: dict[str, list[onnx.ValueInfoProto]] = {}
        self._shapes: dict[str, np.ndarray] = {}

    def rewrite(self, source: OriginalModel) -> None:
        graph = source.proto.graph
        for field in _DECLARED:
            self._before[field] = [_copy(value) for value in getattr(graph, field)]
        del graph.value_info[:]
        for value in (*graph.input, *graph.output):
            dims = value.type.tensor_type.shape.dim
            if dims and dims[0].dim_value == self.size and value.name not in source.tensors:
                dims[0].dim_param = NAME
        for name in {n.input[1] for n in graph.node if n.op_type == "Reshape" and not n.domain}:
            tensor = source.tensors.get(name)
            if tensor is not None:
                self._free(tensor, source.array(name))
        source.refresh()

    def _free(self, tensor: onnx.TensorProto, shape: np.ndarray) -> None:
        if shape.ndim != 1 or not len(shape) or shape[0] != self.size:
            return
        self._shapes[tensor.name] = shape
        freed = shape.copy()
        freed[0] = 0 if (shape == -1).any() else -1
        tensor.CopyFrom(numpy_helper.from_array(freed, tensor.name))

    def describe(self) -> Iterable[Note]:
        yield Note(
            "batch",
            "",
            f"the model fixes its batch at {self.size}: made free for training, after a run that gave every row the "
            "same numbers; the written file fixes it again",
        )

    def write_back(self, draft: Draft) -> None:
        graph = draft.proto.graph
        for field, values in self._before.items():
            kept = getattr(graph, field)
            del kept[:]
            kept.extend(values)
        for name, tensor in OriginalModel.tensors_of(draft.proto):
            if name in self._shapes:
                tensor.CopyFrom(numpy_helper.from_array(self._shapes[name], tensor.name))


def _copy(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    made = onnx.ValueInfoProto()
    made.CopyFrom(value)
    return made
