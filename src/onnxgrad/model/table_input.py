"""Preparation of a table, written into the model: columns by name, gaps filled, numbers standardised.

The nodes stand in front of the input in the file that is written, so that production feeds raw
rows and computes what training computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxgrad.errors import ModelError
from onnxgrad.files.tensors import graphs
from onnxgrad.model.change import Change
from onnxgrad.model.roles import Tensor
from onnxgrad.model.source import OriginalModel
from onnxgrad.notes import Note

ML = "ai.onnx.ml"
OLDEST = 9  # the opset of Where and IsNaN


@dataclass
class Columns:
    """The inputs that take the place of one: a name, and the words of a category (none: a number)."""

    names: list[str]
    words: list[Sequence[str]]

    @property
    def width(self) -> int:
        return sum(len(words) or 1 for words in self.words)


class TableInput(Change):
    """Puts nodes in front of a float input of rows of numbers.

    columns: the input becomes one input per column, [N, 1] each: floats, or text that is encoded as
        one number per word, 1 for the word that it is (all 0 for a word that is not known).
    fill: what takes the place of NaN. mean, deviation: (x - mean) / deviation; each is one number,
        or one for each of a row.

    Raises ModelError for an input that is not a float, or a model too old for the operators.
    """

    def __init__(
        self,
        input: str,
        *,
        columns: Columns | None = None,
        fill: np.ndarray | None = None,
        mean: np.ndarray | None = None,
        deviation: np.ndarray | None = None,
    ):
        self.input, self.columns = input, columns
        self.fill, self.mean, self.deviation = fill, mean, deviation
        self.tensors: list[str] = []

    def rewrite(self, source: OriginalModel) -> None:
        graph = source.proto.graph
        value = next((v for v in graph.input if v.name == self.input), None)
        if value is None:
            raise ModelError(f"the model has no input {self.input!r} to prepare")
        kind = value.type.tensor_type.elem_type
        if kind not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
            raise ModelError(f"input {self.input!r} takes no floats: it cannot be prepared")
        opset = next(
            (o.version for o in source.proto.opset_import if o.domain in ("", "ai.onnx")), 1
        )
        if opset < OLDEST:
            raise ModelError(f"the model is of opset {opset}; preparing an input needs {OLDEST}")
        writer = _Writer(graph, self.input, kind)
        last = self._write(writer, value, source.proto)
        writer.insert(self.input, last)
        self.tensors = writer.tensors
        source.refresh()

    def _write(self, writer: _Writer, value: onnx.ValueInfoProto, proto: onnx.ModelProto) -> str:
        now = self.input
        if self.columns is not None:
            now = self._columns(writer, value, proto)
        if self.fill is not None:
            missing = writer.node("IsNaN", [now], "missing")
            now = writer.node("Where", [missing, writer.constant("fill", self.fill), now], "filled")
        if self.mean is not None:
            now = writer.node("Sub", [now, writer.constant("mean", self.mean)], "centred")
        if self.deviation is not None:
            deviation = writer.constant("deviation", self.deviation)
            now = writer.node("Div", [now, deviation], "standard")
        return now

    def _columns(self, writer: _Writer, value: onnx.ValueInfoProto, proto: onnx.ModelProto) -> str:
        dims = value.type.tensor_type.shape.dim
        if len(dims) != 2:
            raise ModelError(
                f"input {self.input!r} has rank {len(dims)}, expected rows of numbers for columns by name"
            )
        taken = writer.names - {self.input}
        rows = dims[0].dim_param or dims[0].dim_value or None
        parts = []
        for name, words in zip(self.columns.names, self.columns.words, strict=True):
            if name in taken:
                raise ModelError(
                    f"column '{name}' has the name of a tensor of the model: rename it"
                )
            writer.inputs.append((name, TensorProto.STRING if words else writer.kind, [rows, 1]))
            parts.append(_encoded(writer, name, words) if words else name)
        if any(self.columns.words) and not any(o.domain == ML for o in proto.opset_import):
            proto.opset_import.append(helper.make_opsetid(ML, 3))
        return writer.node("Concat", parts, "columns", axis=1)

    def judge(self, tensors: list[Tensor]) -> list[Tensor]:
        reason = "it prepares an input before the first layer (mean, deviation, fill)"
        own = set(self.tensors)
        return [
            replace(t, kind="normalisation", reason=reason, possible=False) if t.name in own else t
            for t in tensors
        ]

    def describe(self) -> Iterable[Note]:
        """The job that made the statistics says what they are of."""
        return ()


def _encoded(writer: _Writer, name: str, words: Sequence[str]) -> str:
    """[N, 1] text -> [N, words]."""
    made = writer.node(
        "OneHotEncoder", [name], f"{name}/words", domain=ML, cats_strings=list(words), zeros=1
    )
    flat = writer.node("Flatten", [made], f"{name}/flat", axis=1)
    if writer.kind == TensorProto.FLOAT:
        return flat
    return writer.node("Cast", [flat], f"{name}/cast", to=writer.kind)


class _Writer:
    """Nodes, tensors and inputs that will stand at the front of a graph."""

    def __init__(self, graph: onnx.GraphProto, prefix: str, kind: int):
        self.graph, self.prefix, self.kind = graph, prefix, kind
        values = (*graph.input, *graph.output, *graph.initializer)
        self.names = {v.name for v in values}
        self.names |= {name for node in graph.node for name in node.output}
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[str] = []
        self.inputs: list[tuple[str, int, list]] = []

    def fresh(self, name: str) -> str:
        made = f"{self.prefix}/{name}"
        while made in self.names:
            made += "_"
        self.names.add(made)
        return made

    def constant(self, name: str, array: np.ndarray) -> str:
        name = self.fresh(name)
        dtype = helper.tensor_dtype_to_np_dtype(self.kind)
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        self.tensors.append(name)
        return name

    def node(self, op: str, inputs: list[str], name: str, domain: str = "", **attributes) -> str:
        output = self.fresh(name)
        made = helper.make_node(op, inputs, [output], name=output, domain=domain, **attributes)
        self.nodes.append(made)
        return output

    def insert(self, old: str, new: str) -> None:
        """Let everything that read the input `old` read `new`, which the nodes make of it."""
        for graph in graphs(self.graph):
            for node in graph.node:
                for place, name in enumerate(node.input):
                    if name == old:
                        node.input[place] = new
        rest = list(self.graph.node)
        del self.graph.node[:]
        self.graph.node.extend([*self.nodes, *rest])
        if self.inputs:
            at = [v.name for v in self.graph.input].index(old)
            inputs = [helper.make_tensor_value_info(n, k, d) for n, k, d in self.inputs]
            others = list(self.graph.input)
            del self.graph.input[:]
            self.graph.input.extend([*others[:at], *inputs, *others[at + 1 :]])
