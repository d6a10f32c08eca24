"""The builder: `op.Mul(a, b)` writes a node, shares it with its twins and folds what is trivial."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxgrad.graph import infer, versions
from onnxgrad.graph.constants import Constants
from onnxgrad.graph.fold import FOLD, LINEAR, fold_integers
from onnxgrad.graph.schemas import signature

MICROSOFT = "com.microsoft"
_RANDOM = {
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
    "Bernoulli", "Multinomial", "Dropout",
}  # fmt: skip


class ShapeUnknown(Exception):
    """A rule needs the rank of a value, or a constant, that the model does not tell."""


class Builder:
    """Writes nodes into a graph. `op.<Operator>(...)` returns the node's output as an `ir.Value`.

    - An argument is a value, a Python number (a constant of its neighbour's type), a list of
      ints (an int64 constant), a NumPy array, or None for an absent optional input.
    - `outputs=3` asks for three outputs, `outputs=need` for those that a rule needs; the result
      is then a tuple, with None for an output that was left out.
    - None stands for a zero cotangent: operators that are linear pass it on.
    - Nodes are written as in the newest opset; `versions.py` says how older ones spell them.
    - The same node is never made twice, the forward graph's own nodes included.
    - What no output needs is never added: `finish()` keeps only what is reachable.
    """

    def __init__(self, model: ir.Model, variables: Iterable[ir.Value] = ()):
        """`variables` are initializers that will change, so that their values are never used."""
        self._evaluated = Constants(set(variables))
        self.model, self.graph = model, model.graph
        self.opset = model.opset_imports[""]
        self._made: dict[tuple, tuple[ir.Value, ...]] = {}
        self._constants: dict[tuple, ir.Value] = {}
        self._nodes: list[ir.Node] = []
        self._replaced: list[tuple[ir.Value, ir.Value]] = []
        self._names = _names(model.graph)
        self._count = 0
        for node in model.graph:
            self._remember(node)

    # ---- nodes -------------------------------------------------------------------------------

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[0].isupper():
            raise AttributeError(f"the builder has no attribute {op_type!r}")

        def emit(*inputs: Any, **attributes: Any) -> Any:
            return self(op_type, *inputs, **attributes)

        return emit

    def __call__(
        self, op_type: str, *inputs: Any, domain: str | None = None, outputs: Any = 1, **attributes
    ) -> Any:
        """Write a node of any domain: `op("Foo", x, domain="my.domain", alpha=2.0)`.

        Without `domain` it is ONNX's operator of that name, else onnxgrad's (com.microsoft).
        """
        if domain is None:
            domain = "" if signature(op_type, 1 << 20) else MICROSOFT
        if domain == "":
            if op_type in LINEAR and any(inputs[i] is None for i in LINEAR[op_type](inputs)):
                return self._linear(op_type, inputs, attributes)
            values = self._values(op_type, inputs)
            folded = fold_integers(self, op_type, values, attributes)
            if folded is None and op_type in FOLD:
                folded = FOLD[op_type](self, *values, **attributes)
            if folded is not None:
                return folded
            if op_type in versions.OLDER:
                return versions.OLDER[op_type](self, op_type, values, attributes, outputs)
        else:
            values = self._values(op_type, inputs)
        return self.emit(op_type, values, attributes, outputs, domain)

    def emit(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: dict[str, Any],
        outputs: Any = 1,
        domain: str = "",
    ) -> Any:
        """Write a node exactly as given: neither folded nor respelt."""
        inputs = list(inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        attributes = {k: v for k, v in attributes.items() if v is not None}
        flags = _flags(outputs)
        key = self._key(domain, op_type, inputs, attributes, flags)
        made = self._made.get(key)
        if made is None:
            made = self._new(domain, op_type, inputs, attributes, flags)
            self._made[key] = made
        results = tuple(v if f else None for v, f in zip(made, flags, strict=False))
        return results[0] if outputs == 1 else results + (None,) * (len(flags) - len(results))

    def _new(self, domain, op_type, inputs, attributes, flags) -> tuple[ir.Value, ...]:
        while not flags[-1]:
            flags = flags[:-1]
        self._count += 1
        stem = f"grad/{op_type}_{self._count}"
        values = [
            ir.Value(name=self.fresh(stem if len(flags) == 1 else f"{stem}_{i}") if flag else "")
            for i, flag in enumerate(flags)
        ]
        values[0].dtype, shape = infer.infer(op_type, inputs, attributes)
        values[0].shape = None if shape is None else ir.Shape(shape)
        for value in values[1:]:
            value.dtype = values[0].dtype
        node = ir.Node(
            domain,
            op_type,
            inputs,
            [ir.convenience.convert_attribute(k, v) for k, v in attributes.items()],
            outputs=values,
            name=stem,
        )
        self._nodes.append(node)
        return tuple(values)

    def _linear(self, op_type: str, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        """An operator on a zero cotangent: sums drop it, everything else is zero."""
        rest = [x for x in inputs if x is not None]
        if op_type not in ("Add", "Sub", "Sum") or not rest:
            return None
        if op_type == "Sub" and inputs[0] is None:
            return self.Neg(rest[0])
        return rest[0] if len(rest) == 1 else self("Sum", *rest)

    def copy(self, value: ir.Value) -> ir.Value:
        """Return a value of its own that equals `value`: the one node that is never shared."""
        return self._new("", "Identity", [value], {}, [True])[0]

    def instead(self, forward: ir.Value, value: ir.Value) -> None:
        """Compute the forward value from now on by `value`, e.g. by a node that also keeps gates."""
        self._replaced.append((forward, value))

    # ---- constants ---------------------------------------------------------------------------

    def constant(self, array: Any, dtype: ir.DataType | None = None) -> ir.Value:
        """Return a constant shared by everyone who asks for the same array.

        A list of ints is int64; with `dtype` the array is converted first.
        """
        array = np.asarray(array, np.int64) if isinstance(array, list) else np.asarray(array)
        if dtype is not None:
            array = array.astype(dtype.numpy())
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self._constants:
            name = self.fresh(f"grad/constant_{len(self._constants)}")
            tensor = ir.tensor(array, dtype=dtype, name=name)
            value = ir.Value(name=name, const_value=tensor)
            value.dtype, value.shape = tensor.dtype, ir.Shape(array.shape)
            self._constants[key] = value
        return self._constants[key]

    def array(self, value: ir.Value | None) -> np.ndarray | None:
        """Return what a value holds at every run; None where that depends on the run."""
        return None if value is None else self._evaluated.array(value)

    def ints(self, value: ir.Value | None) -> list[int] | None:
        """Return a small constant such as axes as Python ints; None when it is not constant.

        `op.ints(op.constant([0, 2]))` is [0, 2].
        """
        array = self.array(value)
        return None if array is None else [int(i) for i in array.reshape(-1)]

    # ---- shapes ------------------------------------------------------------------------------

    def dims(self, value: ir.Value) -> infer.Dims | None:
        """Return the shape as far as it is known: ints, names, None; None for an unknown rank."""
        return infer.dims(value)

    def rank(self, value: ir.Value) -> int:
        """Return the rank. Raises ShapeUnknown when the model does not tell it."""
        shape = infer.dims(value)
        if shape is None:
            raise ShapeUnknown(f"the rank of {value.name!r} is unknown")
        return len(shape)

    def shape(self, value: ir.Value) -> ir.Value:
        """Return the shape as an int64 vector: a constant when it is static, else a Shape node."""
        shape = infer.dims(value)
        return self.constant(list(shape)) if infer.is_static(shape) else self.Shape(value)

    def dim(self, value: ir.Value, axis: int) -> ir.Value:
        """Return one dimension as an int64 vector of length 1."""
        shape = infer.dims(value)
        if shape is not None and isinstance(shape[axis], int):
            return self.constant([shape[axis]])
        return self.Gather(self.Shape(value), self.constant([axis]), axis=0)

    def same_shape(self, a: ir.Value, b: ir.Value) -> bool:
        """Say whether two values surely have the same shape."""
        x, y = infer.dims(a), infer.dims(b)
        return x is not None and x == y and None not in x

    def full(self, shape: Any, number: float, dtype: ir.DataType) -> ir.Value:
        """Return a tensor of one number, of a shape that may be computed."""
        value = ir.tensor(np.array([number], dtype.numpy()), dtype=dtype)
        shape = shape if isinstance(shape, ir.Value) else self.constant(shape)
        return self.ConstantOfShape(shape, value=value)

    def full_like(self, value: ir.Value, number: float) -> ir.Value:
        """Return a tensor of the shape and type of `value`, filled with one number."""
        return self.full(self.shape(value), number, self.dtype(value))

    def dtype(self, value: ir.Value) -> ir.DataType:
        """Return the element type. Raises ShapeUnknown when the model does not tell it."""
        if value.dtype is None:
            raise ShapeUnknown(f"the type of {value.name!r} is unknown")
        return value.dtype

    def range(self, size: ir.Value) -> ir.Value:
        """Return 0, 1, …, size - 1 as int64; `size` is a vector of length 1, as `dim` gives it."""
        return self.Range(0, self.Squeeze(size, [0]), 1)

    def number(self, value: ir.Value, like: ir.Value) -> ir.Value:
        """Return an integer tensor, such as a count, in the type of `like`."""
        return self.Cast(value, to=self.dtype(like))

    def reshape_like(self, value: ir.Value | None, like: ir.Value) -> ir.Value | None:
        """Return `value` in the shape of `like`."""
        if value is None or self.same_shape(value, like):
            return value
        return self.Reshape(value, self.shape(like), allowzero=self._allowzero(like))

    def _allowzero(self, like: ir.Value) -> int | None:
        # A dimension of size 0 in a computed shape means 0, not "copy this one from the input".
        return None if infer.is_static(infer.dims(like)) and 0 not in infer.dims(like) else 1

    def expand_like(self, value: ir.Value | None, like: ir.Value) -> ir.Value | None:
        """Return `value` broadcast to the shape of `like`."""
        if value is None or self.same_shape(value, like):
            return value
        return self.Expand(value, self.shape(like))

    def crop_like(self, value: ir.Value, like: ir.Value, axes: list[int]) -> ir.Value:
        """Return the first part of `value` along `axes`, as long as `like` is there."""
        if self.same_shape(value, like):
            return value
        ends = self.Concat(*[self.dim(like, a) for a in axes], axis=0)
        return self.Slice(value, [0] * len(axes), ends, axes)

    def sum_to(self, value: ir.Value | None, like: ir.Value) -> ir.Value | None:
        """Undo broadcasting: sum `value` over the axes along which `like` was repeated."""
        if value is None or self.same_shape(value, like):
            return value
        wide, narrow = infer.dims(value), infer.dims(like)
        if wide is None or narrow is None:
            return self._sum_to_computed(value, like)
        narrow = (1,) * (len(wide) - len(narrow)) + narrow
        pairs = list(zip(wide, narrow, strict=True))
        # Open: `like` may be 1 where `value` is not, and only the run knows.
        if any(n is None or (isinstance(n, str) and w not in (1, n)) for w, n in pairs):
            return self._sum_to_computed(value, like)
        axes = [i for i, (w, n) in enumerate(pairs) if n == 1 and w != 1]
        lead = len(wide) - len(infer.dims(like))
        if axes == list(range(lead)):
            return self.ReduceSum(value, axes, keepdims=0) if axes else value
        return self.reshape_like(self.ReduceSum(value, axes, keepdims=1) if axes else value, like)

    def _sum_to_computed(self, value: ir.Value, like: ir.Value) -> ir.Value:
        wide, narrow = self.Shape(value), self.Shape(like)
        lead = self.Sub(self.Shape(wide), self.Shape(narrow))
        padded = self.Concat(self.full(lead, 1, ir.DataType.INT64), narrow, axis=0)
        axes = self.Squeeze(self.NonZero(self.Not(self.Equal(padded, wide))), [0])
        summed = self.ReduceSum(value, axes, keepdims=1, noop_with_empty_axes=1)
        return self.Reshape(summed, narrow, allowzero=1)

    # ---- finishing ---------------------------------------------------------------------------

    def fresh(self, name: str) -> str:
        """Return `name`, or `name_1`, `name_2`, … when the graph has it already; then it is taken."""
        candidate, n = name, 0
        while candidate in self._names:
            n += 1
            candidate = f"{name}_{n}"
        self._names.add(candidate)
        return candidate

    def finish(self, outputs: Iterable[ir.Value]) -> None:
        """Add to the graph every node and constant that `outputs` need, and nothing else."""
        mine = set(self._nodes)
        constants = set(self._constants.values())
        keep: set[ir.Node] = set()
        used: set[ir.Value] = set()
        stack = [*outputs, *(new for _, new in self._replaced)]
        while stack:
            value = stack.pop()
            if value in constants:
                used.add(value)
            node = value.producer()
            if node in mine and node not in keep:
                keep.add(node)
                stack.extend(v for v in node.inputs if v is not None)
        for value in self._constants.values():
            if value in used:
                self.graph.register_initializer(value)
        self.graph.extend([n for n in self._nodes if n in keep])
        for node in self._nodes:
            if node not in keep:  # so that forward values do not count it among their users
                for i in range(len(node.inputs)):
                    node.replace_input_with(i, None)
        if any(n.domain == MICROSOFT for n in keep):
            self.model.opset_imports.setdefault(MICROSOFT, 1)
        if self._replaced:
            for forward, value in self._replaced:
                _take_over(self.graph, forward, value)
            self.graph.sort()

    # ---- inner workings ----------------------------------------------------------------------

    def _values(self, op_type: str, inputs: Sequence[Any]) -> list[ir.Value | None]:
        if all(x is None or isinstance(x, ir.Value) for x in inputs):
            return list(inputs)
        sig = signature(op_type, self.opset)
        types = sig.types if sig else ()
        near = next((i for i, x in enumerate(inputs) if _typed(x) and not _is_mask(op_type, i)), None)

        def convert(i: int, x: Any) -> ir.Value | None:
            if x is None or isinstance(x, ir.Value):
                return x
            if isinstance(x, (bool, int, float, np.floating)) and near is not None:
                kind = types[min(i, len(types) - 1)] if types else "T"
                if isinstance(x, float) or not types or kind == types[min(near, len(types) - 1)]:
                    return self.constant(np.array(x), self.dtype(inputs[near]))
            return self.constant(np.asarray(x, np.int64) if isinstance(x, (int, list, tuple)) else x)

        return [convert(i, x) for i, x in enumerate(inputs)]

    def _key(self, domain, op_type, inputs, attributes, flags) -> tuple:
        sig = signature(op_type, self.opset, domain)
        defaults = sig.attributes if sig else {}
        frozen = tuple(
            sorted(
                (k, _freeze(v)) for k, v in attributes.items() if _freeze(v) != _freeze(defaults.get(k))
            )
        )
        return (domain, op_type, tuple(map(id, inputs)), frozen, tuple(flags))

    def _remember(self, node: ir.Node) -> None:
        """Let the gradient share this forward node."""
        kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
        if node.op_type in _RANDOM or any(a.type in kinds for a in node.attributes.values()):
            return
        inputs = list(node.inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        attributes = {k: a.value for k, a in node.attributes.items()}
        flags = [bool(v.name) for v in node.outputs]
        key = self._key(node.domain, node.op_type, inputs, attributes, flags)
        self._made.setdefault(key, tuple(node.outputs))


def _take_over(graph: ir.Graph, forward: ir.Value, value: ir.Value) -> None:
    """Give the forward value's name, users and place among the outputs to `value`."""
    name, shape, kind = forward.name, forward.shape, forward.type
    ir.convenience.replace_all_uses_with(forward, value, replace_graph_outputs=True)
    forward.name = f"{name}/unused"
    value.name, value.shape, value.type = name, shape, kind
    node = forward.producer()
    if node.graph is not None and not any(
        v.uses() or v.is_graph_output() for v in node.outputs
    ):
        graph.remove(node, safe=True)


def _names(graph: ir.Graph) -> set[str]:
    names = {v.name for v in graph.inputs} | set(graph.initializers)
    for node in ir.traversal.RecursiveGraphIterator(graph):
        names.add(node.name)
        names.update(v.name for v in node.outputs)
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                inner = attribute.value
                names.update(v.name for v in inner.inputs)
                names.update(inner.initializers)
    return names


def _typed(x: Any) -> bool:
    return isinstance(x, ir.Value) and x.dtype is not None


def _is_mask(op_type: str, index: int) -> bool:
    return op_type == "Where" and index == 0


def _flags(outputs: Any) -> list[bool]:
    """`outputs` is a count, or says which outputs are wanted (`need` of a rule)."""
    if isinstance(outputs, int):
        return [True] * outputs
    return list(outputs.flags) if hasattr(outputs, "flags") else [bool(x) for x in outputs]


def _freeze(value: Any) -> Any:
    if isinstance(value, (list, tuple, range)):
        return tuple(value)
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if hasattr(value, "numpy") and hasattr(value, "dtype"):
        array = value.numpy()
        return (str(value.dtype), array.shape, array.tobytes())
    return value
