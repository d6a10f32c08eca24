"""The builder: `op.Mul(a, b)` writes a node, shares it with its twins and folds what is trivial."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxgrad.contracts import DOMAIN
from onnxgrad.errors import ContractError
from onnxgrad.graph import infer, schemas, versions
from onnxgrad.graph.bodies import captured
from onnxgrad.graph.constants import Constants
from onnxgrad.graph.fold import FOLD, LINEAR, fold_integers
from onnxgrad.graph.nodes import flags_of, freeze, is_typed, names, take_over
from onnxgrad.graph.schemas import signature
from onnxgrad.graph.shapes import Shapes

RANDOM = {
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
    "Bernoulli", "Multinomial", "Dropout",
}  # fmt: skip


class Builder(Shapes):
    """Writes nodes into a graph. `op.<Operator>(...)` returns the node's output as an `ir.Value`.

    - An argument is a value, a Python number (a constant of its neighbour's type), a list of
      ints (an int64 constant), a NumPy array, or None for an absent optional input.
    - `outputs=3` asks for three outputs, `outputs=need` for those that a rule needs; the result
      is then a tuple, with None for an output that was left out.
    - None stands for a zero cotangent: operators that are linear pass it on.
    - Nodes are written as in the newest opset; `versions.py` says how older ones spell them.
    - ONNX's schemas and our contracts are asked about every node: a name that neither has, too
      many inputs or outputs, or an attribute that is unknown is a ContractError at once.
    - The same node is never made twice, the forward graph's own nodes included.
    - What no output needs is never added: `finish()` keeps only what is reachable.
    """

    def __init__(self, model: ir.Model, variables: Iterable[ir.Value] = (), prefix: str = "grad"):
        """`variables` are initializers that will change, so that their values are never used.

        `prefix` begins the names of new nodes.
        """
        self._evaluated, self._prefix = Constants(set(variables)), prefix
        self._constants: dict[tuple, ir.Value] = {}
        self._names = names(model.graph)
        self._start(model, model.graph)

    def _start(self, model: ir.Model, graph: ir.Graph) -> None:
        self.model, self.graph = model, graph
        self.opset = model.opset_imports[""]
        self._made: dict[tuple, tuple[ir.Value, ...]] = {}
        self._nodes: list[ir.Node] = []
        self._replaced: list[tuple[ir.Value, ir.Value]] = []
        self._count = 0
        for node in graph:
            self._remember(node)

    def inside(self, body: ir.Graph) -> Builder:
        """Return a builder for the body of an If, which shares constants and names with this."""
        inner = Builder.__new__(Builder)
        inner._evaluated, inner._names = self._evaluated, self._names
        inner._constants, inner._prefix = self._constants, self._prefix
        inner._start(self.model, body)
        return inner

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

        Without `domain` it is ONNX's operator of that name, or onnxgrad's (com.microsoft).
        """
        if domain is None:
            domain = schemas.domain_of(op_type)
            if domain is None:
                raise ContractError(schemas.unknown_operator(op_type))
        if domain == "":
            self._check_words(op_type, inputs, attributes)
            if op_type in LINEAR and any(inputs[i] is None for i in LINEAR[op_type](inputs)):
                return self._linear(op_type, inputs, attributes)
            values = self._values(op_type, inputs, domain)
            folded = fold_integers(self, op_type, values, attributes)
            if folded is None and op_type in FOLD:
                folded = FOLD[op_type](self, *values, **attributes)
            if folded is not None:
                return folded
            if op_type in versions.OLDER:
                return versions.OLDER[op_type](self, op_type, values, attributes, outputs)
        else:
            values = self._values(op_type, inputs, domain)
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
        flags = flags_of(outputs)
        self._check(domain, op_type, inputs, attributes, len(flags))
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
        stem = self._stem(op_type)
        values = [
            ir.Value(name=self.fresh(stem if len(flags) == 1 else f"{stem}_{i}") if flag else "")
            for i, flag in enumerate(flags)
        ]
        node = ir.Node(
            domain,
            op_type,
            inputs,
            [ir.convenience.convert_attribute(k, v) for k, v in attributes.items()],
            outputs=values,
            name=stem,
        )
        infer.tell(node, self._opset_of(domain))
        self._nodes.append(node)
        return tuple(values)

    def _opset_of(self, domain: str) -> int:
        return self.model.opset_imports.get(domain, schemas.NEWEST)

    def _check_words(self, op_type: str, inputs: Sequence[Any], attributes: dict[str, Any]) -> None:
        """Before folding and respelling: the model's opset or the newest has such words."""
        known = [True] * len(inputs)  # a zero cotangent is None, and not left out
        for sig in (signature(op_type, self.opset), signature(op_type, schemas.NEWEST)):
            wrong = sig and (
                sig.wrong_inputs(known)
                or sig.unknown_attribute(attributes)
                or sig.missing_attribute(attributes)
            )
            if sig and not wrong:
                return
        raise ContractError(f"{op_type} {wrong}")

    def _check(self, domain: str, op_type: str, inputs, attributes, outputs: int) -> None:
        """The node as it will be written is one that the model's opset has."""
        sig = signature(op_type, self._opset_of(domain), domain)
        if sig is None:
            since = schemas.versions(op_type, domain)
            if since:
                raise ContractError(
                    f"{op_type} is in ONNX from opset {since[0]} on, the model has {self.opset}"
                )
            return  # an operator of the user's own domain
        wrong = (
            sig.wrong_inputs(inputs)
            or sig.unknown_attribute(attributes)
            or sig.missing_attribute(attributes)
            or sig.wrong_outputs(outputs)
        )
        if wrong:
            raise ContractError(f"{op_type} {wrong}")

    def _stem(self, op_type: str) -> str:
        """Return a name for a node, and for what it makes."""
        while True:
            self._count += 1
            stem = f"{self._prefix}/{op_type}_{self._count}"
            if stem not in self._names:
                return stem

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
        """Compute the forward value from now on by `value`, of a node that keeps more."""
        self._replaced.append((forward, value))

    def replace(self, node: ir.Node, results: Iterable[ir.Value | None]) -> None:
        """Compute the outputs that a forward node gives from now on by `results`, in its order."""
        for old, new in zip(node.outputs, results, strict=False):
            if old.name and new is not None:
                self.instead(old, new)

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
            name = self.fresh(f"{self._prefix}/constant_{len(self._constants)}")
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

    # ---- finishing ---------------------------------------------------------------------------

    def fresh(self, name: str) -> str:
        """Take a name: `name`, or `name_1`, `name_2`, … when the graph has it already."""
        candidate, n = name, 0
        while candidate in self._names:
            n += 1
            candidate = f"{name}_{n}"
        self._names.add(candidate)
        return candidate

    def finish(self, outputs: Iterable[ir.Value]) -> None:
        """Add to the graph every node and constant that `outputs` need, and nothing else."""
        keep, used = self._reach([*outputs, *(new for _, new in self._replaced)])
        for value in self._constants.values():
            if value in used:
                self.graph.register_initializer(value)
        self.graph.extend([n for n in self._nodes if n in keep])
        self._drop(keep)
        self._take_over()

    def finish_body(self, outputs: Iterable[ir.Value]) -> list[ir.Node]:
        """Return the nodes that `outputs` need, for a body of their own.

        What computes forward values from now on (`instead`) becomes part of this graph.
        """
        forward, _ = self._reach([new for _, new in self._replaced])
        self.graph.extend([n for n in self._nodes if n in forward])
        self._nodes = [n for n in self._nodes if n not in forward]
        keep, _ = self._reach(list(outputs))
        self._drop(keep)
        self._take_over()
        return [n for n in self._nodes if n in keep]

    def _reach(self, stack: list[ir.Value]) -> tuple[set[ir.Node], set[ir.Value]]:
        """Return the nodes written here, and the constants, that values depend on."""
        mine, constants = set(self._nodes), set(self._constants.values())
        keep: set[ir.Node] = set()
        used: set[ir.Value] = set()
        while stack:
            value = stack.pop()
            if value in constants:
                used.add(value)
            node = value.producer()
            if node in mine and node not in keep:
                keep.add(node)
                stack.extend(v for v in (*node.inputs, *captured(node)) if v is not None)
        # A body of the forward graph may read a constant, too: what `instead` put there.
        for graph in self.model.graphs() if self.graph is self.model.graph else ():
            used.update(v for n in graph for v in n.inputs if v in constants)
        return keep, used

    def _drop(self, keep: set[ir.Node]) -> None:
        for node in self._nodes:
            if node not in keep:  # so that forward values do not count it among their users
                for i in range(len(node.inputs)):
                    node.replace_input_with(i, None)
        if any(n.domain == DOMAIN for n in self._nodes if n in keep or n.graph is not None):
            self.model.opset_imports.setdefault(DOMAIN, 1)

    def _take_over(self) -> None:
        if self._replaced:
            for forward, value in self._replaced:
                take_over(self.graph, forward, value)
            self.graph.sort()
        for value in (v for n in self._nodes if n.graph is not None for v in n.outputs):
            if value.dtype is None:  # a tensor of no type cannot be written
                value.type = None

    # ---- inner workings ----------------------------------------------------------------------

    def _values(self, op_type: str, inputs: Sequence[Any], domain: str) -> list[ir.Value | None]:
        """Turn numbers, lists and arrays into constants; a number has its neighbours' type."""
        if all(x is None or isinstance(x, ir.Value) for x in inputs):
            return list(inputs)
        sig = signature(op_type, self._opset_of(domain), domain)
        types = sig.types if sig else ()
        letters = [types[min(i, len(types) - 1)] if types else "T" for i in range(len(inputs))]
        typed = [i for i, x in enumerate(inputs) if is_typed(x)]

        def convert(i: int, x: Any) -> ir.Value | None:
            if x is None or isinstance(x, ir.Value):
                return x
            if isinstance(x, (bool, int, float, np.floating)):
                like = [j for j in typed if letters[j] == letters[i]]
                if not like and isinstance(x, (float, np.floating)):
                    # the exponent of Pow has a type of its own
                    like = [j for j in typed if inputs[j].dtype.is_floating_point()]
                if like:
                    return self.constant(np.array(x), self.dtype(inputs[like[0]]))
            return self.constant(
                np.asarray(x, np.int64) if isinstance(x, (int, list, tuple)) else x
            )

        return [convert(i, x) for i, x in enumerate(inputs)]

    def _key(self, domain, op_type, inputs, attributes, flags) -> tuple:
        sig = signature(op_type, self._opset_of(domain), domain)
        defaults = sig.attributes if sig else {}
        frozen = tuple(
            sorted(
                (k, freeze(v))
                for k, v in attributes.items()
                if freeze(v) != freeze(defaults.get(k))
            )
        )
        return (domain, op_type, tuple(map(id, inputs)), frozen, tuple(flags))

    def _remember(self, node: ir.Node) -> None:
        """Let the gradient share this forward node."""
        kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
        if node.op_type in RANDOM or any(a.type in kinds for a in node.attributes.values()):
            return
        inputs = list(node.inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        attributes = {k: a.value for k, a in node.attributes.items()}
        flags = [bool(v.name) for v in node.outputs]
        key = self._key(node.domain, node.op_type, inputs, attributes, flags)
        self._made.setdefault(key, tuple(node.outputs))
