"""What patterns ask of a graph: who made a value, who reads it, what it always holds."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxgrad.graph.builder import Builder
from onnxgrad.graph.constants import TABLE
from onnxgrad.graph.infer import Dims, dims

_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
_LARGEST_CONSTANT = 1 << 24  # elements of a mask that is looked at


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a / b if a.dtype.kind == "f" else TABLE["Div"](a, b)


def _trilu(x: np.ndarray, k: np.ndarray | None = None, upper: int = 1) -> np.ndarray:
    return (np.triu if upper else np.tril)(x, 0 if k is None else int(k.reshape(-1)[0]))


# What scales and masks are made of, beside what shapes are made of.
_TABLE = {
    **TABLE,
    "Div": _divide,
    "Sqrt": np.sqrt,
    "Reciprocal": lambda x: 1 / x,
    "Pow": np.power,
    "Trilu": _trilu,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Not": np.logical_not,
}


class Sight:
    """One pass over a graph: answers questions, and remembers what is replaced."""

    def __init__(self, op: Builder, variables: set[ir.Value]):
        self.op, self.variables = op, variables
        self.replaced: list[ir.Node] = []
        self._known: dict[ir.Value, np.ndarray | None] = {}

    # ---- questions

    def maker(self, value: ir.Value | None, *op_types: str, domain: str = "") -> ir.Node | None:
        """The node that made a value, if it is one of these operators of ONNX."""
        node = None if value is None else value.producer()
        right = node is not None and node.op_type in op_types and node.domain == domain
        return node if right and node.graph is self.op.graph else None

    def read_once(self, value: ir.Value | None) -> bool:
        """Whether one node reads the value, once, and nobody else sees it; an absent one is not read."""
        if value is None:
            return False
        seen = value.is_graph_output() or value in self.variables
        return len(value.uses()) == 1 and not seen

    def reader(self, value: ir.Value) -> ir.Node | None:
        """The one node that reads a value; None where there are several, or the value is seen otherwise."""
        return value.uses()[0].node if self.read_once(value) else None

    def array(self, value: ir.Value | None) -> np.ndarray | None:
        """What a value holds at every run; None where that is not known, or much."""
        shape = None if value is None else dims(value)
        if shape is None or any(not isinstance(d, int) for d in shape):
            return None
        if np.prod(shape, dtype=float) > _LARGEST_CONSTANT or value in self.variables:
            return None
        if value not in self._known:
            self._known[value] = None  # a value that waits for itself is none
            self._known[value] = self._evaluate(value)
        return self._known[value]

    def ints(self, value: ir.Value | None) -> list[int] | None:
        """A small constant such as axes."""
        array = self.array(value)
        if array is None:
            return self.op.ints(value)  # of a value whose shape is not known
        return [int(i) for i in array.reshape(-1)]

    def _evaluate(self, value: ir.Value) -> np.ndarray | None:
        node = value.producer()
        if (
            node is not None
            and node.op_type == "Constant"
            and not node.domain
            and "value" in node.attributes
        ):
            return node.attributes[
                "value"
            ].value.numpy()  # as it lies: nothing in the model is named anew
        if node is None or node.domain or node.op_type not in _TABLE:
            return self.op.array(value)
        arrays = [None if v is None else self.array(v) for v in node.inputs]
        if any(a is None and v is not None for a, v in zip(arrays, node.inputs, strict=True)):
            return None
        try:
            attributes = {k: a.value for k, a in node.attributes.items()}
            return np.asarray(_TABLE[node.op_type](*arrays, **attributes))
        except (TypeError, ValueError, IndexError):
            return None  # a form that the table does not know

    def scalar(self, value: ir.Value | None) -> float | None:
        """The one number that a value holds at every run."""
        shape = None if value is None else dims(value)
        if shape is None or any(d != 1 for d in shape) or value.dtype not in _FLOATS:
            return None
        array = self.array(value)
        return None if array is None else float(array.reshape(-1)[0])

    def dims(self, value: ir.Value) -> Dims | None:
        """The shape; None where a dimension has neither size nor name."""
        shape = dims(value)
        return None if shape is None or None in shape else shape

    def is_float(self, value: ir.Value) -> bool:
        return value.dtype in _FLOATS

    def attribute(self, node: ir.Node, name: str, default):
        return node.attributes[name].value if name in node.attributes else default

    def unscaled(self, value: ir.Value) -> tuple[ir.Value, float]:
        """What a value is before products with constants: x and c of c·x."""
        factor = 1.0
        while (node := self.maker(value, "Mul", "Div")) is not None and self.read_once(value):
            a, b = node.inputs
            c = self.scalar(b)
            if c is None and node.op_type == "Mul":
                a, c = b, self.scalar(a)
            if not c or self.dims(a) != self.dims(value):
                break
            value, factor = a, factor * c if node.op_type == "Mul" else factor / c
        return value, factor

    # ---- changes

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Let the readers of `old` read `new`, once the pass is over."""
        self.let_go(old)
        self.op.instead(old, new)

    def let_go(self, value: ir.Value) -> None:
        """Remove what made a value, and all before it, unless something else reads it."""
        node = value.producer()
        makers = [v.producer() for v in node.inputs if v is not None]
        self.replaced += [node, *(m for m in makers if m is not None)]


def remove_unread(graph: ir.Graph, nodes: list[ir.Node]) -> None:
    """Remove nodes that nothing reads any more, and those before them that only they read."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if any(v.uses() or v.is_graph_output() for v in node.outputs):
            continue
        makers = [v.producer() for v in node.inputs if v is not None and v.producer() is not None]
        for i in range(len(node.inputs)):
            node.replace_input_with(i, None)
        if node.graph is graph:
            graph.remove(node, safe=True)
        waiting.extend(m for m in makers if m.graph is graph)
