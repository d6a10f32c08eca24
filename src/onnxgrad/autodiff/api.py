"""`vjp` and `grad`: a model in, a model that also computes gradients out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx_ir as ir

from onnxgrad.autodiff import rules as _rules  # noqa: F401  (fills the registry)
from onnxgrad.autodiff.backward import Walk
from onnxgrad.autodiff.inline import inline
from onnxgrad.autodiff.plan import is_float, make_plan, refuse
from onnxgrad.autodiff.rule import is_a_users
from onnxgrad.autodiff.untrainable import why_no_weights
from onnxgrad.contracts import DOMAIN, OPSET
from onnxgrad.errors import GradientError
from onnxgrad.files.boundary import guarded
from onnxgrad.graph import Builder, finish, load, make_input
from onnxgrad.graph.nodes import values_of
from onnxgrad.graph.patterns import drop_spreads, join_sums, see_patterns


@guarded
def vjp(
    model: Any,
    outputs: Iterable[str] | None = None,
    wrt: Iterable[str] | None = None,
    *,
    ops: str = "fused",
    parameters: str = "initializers",
    patterns: bool = True,
) -> Any:
    """Return a model that maps cotangents of `outputs` to gradients of `wrt`.

    It has the inputs of `model`, then a cotangent input `<output>_grad` for each name in
    `outputs` (default: every float output); the outputs of `model`, then a gradient
    `<name>_grad` for each name in `wrt`: initializers, outputs of Constant nodes, graph inputs
    (default: every trainable float tensor that the outputs depend on).

    `ops="standard"` uses standard ONNX operators only; `"fused"` also onnxgrad's own. These then also take the place of
    what exporters write out in parts (attention, Gelu, RMSNorm), unless `patterns` is False.
    `parameters="inputs"` turns the initializers in `wrt` into graph inputs. `model` is a path,
    bytes, an `onnx.ModelProto` or an `onnx_ir.Model`, and is left unchanged. More than 1 GB of
    weights stay in the files beside a path: save the result into that folder.

    >>> import onnx
    >>> model = onnx.parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     square (float[N] x) => (float[N] y) { y = Mul(x, x) }''')
    >>> g = vjp(model, wrt=["x"])
    >>> [i.name for i in g.graph.input], [o.name for o in g.graph.output]
    (['x', 'y_grad'], ['y', 'x_grad'])

    Raises GradientError, naming every node in the way, where the model has no gradient.
    """
    return Request(model, outputs, wrt, ops, parameters, patterns, seed=None).build()


@guarded
def grad(
    model: Any,
    of: str = "loss",
    wrt: Iterable[str] | None = None,
    *,
    ops: str = "fused",
    parameters: str = "initializers",
    patterns: bool = True,
) -> Any:
    """Return a copy of `model` that also computes the gradient of its scalar output `of`.

    As `vjp`, without cotangent inputs: the cotangent of `of` is 1.

    >>> import onnx
    >>> model = onnx.parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     half_norm (float[3] x) => (float loss) <float[3] w = {1, 2, 3}>
    ...     { p = Mul(x, w)  loss = ReduceSum <keepdims = 0> (p) }''')
    >>> [o.name for o in grad(model, of="loss").graph.output]
    ['loss', 'w_grad']

    Raises GradientError as `vjp` does, and ValueError where `of` is not a scalar.
    """
    return Request(model, [of], wrt, ops, parameters, patterns, seed=1.0).build()


class Request:
    """One call of `vjp` or `grad`."""

    def __init__(self, model, outputs, wrt, ops, parameters, patterns, seed):
        if ops not in ("fused", "standard"):
            raise ValueError(f'ops is {ops!r}, expected "fused" or "standard"')
        if parameters not in ("initializers", "inputs"):
            raise ValueError(f'parameters is {parameters!r}, expected "initializers" or "inputs"')
        self.given, self.model = model, load(model)
        self.ops, self.parameters, self.seed = ops, parameters, seed
        users = any(is_a_users(node.op_type, node.domain) for node in self.model.graph.all_nodes())
        self.patterns = patterns and ops == "fused" and not users
        self.outputs = self._output_names(_names("outputs", outputs))
        self.wrt = _names("wrt", wrt)

    def build(self) -> Any:
        plan, wrt = self.plan()
        if self.patterns and see_patterns(self.model, wrt):
            self.wrt = [v.name for v in wrt]
            plan, wrt = self.plan()
        of = " and ".join(repr(name) for name in self.outputs)
        refuse(plan, of)
        op = Builder(self.model, wrt)
        walk = Walk(op, plan, self.ops)
        cotangents = self.seed_walk(op, walk)
        why = why_no_weights(self.model) if self.wrt is None and not wrt else ""
        if why:
            raise GradientError(f"the model has no weights that {of} depends on{why}")
        walk.run()
        refuse(plan, of)
        gradients = self._gradients(op, walk, wrt)
        self._assemble(op, wrt, cotangents, gradients)
        if self.patterns:
            drop_spreads(self.model.graph)
            join_sums(self.model.graph)
        if self.ops == "fused":
            # even where no operator of ours is used: a session that knows our library fuses nodes
            # into that domain, and then looks for the version that the model imports
            self.model.opset_imports.setdefault(DOMAIN, OPSET)
        return finish(self.model, self.given)

    def plan(self):
        """Plan the walk; inline operators that have a body and no rule until none is left."""
        while True:
            values = values_of(self.model)
            named = self.wrt is not None
            wrt = [self._find(n, values) for n in self.wrt] if named else self.trainable()
            outputs = [values[name] for name in self.outputs]
            plan = make_plan(self.model, outputs, wrt, self.ops)
            if not plan.inline:
                kept = wrt if named else [v for v in wrt if v in plan.active]
                return plan, kept
            self.model = inline(self.model, plan.inline)

    def _find(self, name: str, values: dict[str, ir.Value]) -> ir.Value:
        if name not in values:
            raise ValueError(f"wrt names {name!r}, which the model does not have")
        value = values[name]
        if not is_float(value):
            raise ValueError(
                f"wrt names {name!r} of type {value.dtype.name.lower()}, expected a float tensor"
            )
        return value

    def _output_names(self, names: list[str] | None) -> list[str]:
        own = {v.name: v for v in self.model.graph.outputs}
        if names is None:
            return [name for name, v in own.items() if is_float(v)]
        for name in names:
            if name not in own:
                listed = ", ".join(map(repr, own)) or "none"
                raise ValueError(f"the model has no output {name!r}; its outputs are {listed}")
            if not is_float(own[name]):
                kind = own[name].dtype.name.lower()
                raise ValueError(f"output {name!r} has type {kind}, expected a float tensor")
        return names

    def trainable(self) -> list[ir.Value]:
        """Float tensors of rank >= 1 in initializers and Constants, running statistics excepted.

        A scalar is a setting (an epsilon, a scale), not a weight.
        """
        graph = self.model.graph
        found = dict.fromkeys(graph.initializers.values())
        found.update(
            (n.outputs[0], None) for n in graph if n.op_type == "Constant" and not n.domain
        )
        statistics = {
            v for n in graph if n.op_type == "BatchNormalization" for v in tuple(n.inputs)[3:5]
        }
        return [
            v
            for v in found
            if v.dtype is not None and is_float(v) and v not in statistics and v.shape is not None
            and len(v.shape) > 0
        ]  # fmt: skip

    def seed_walk(self, op: Builder, walk: Walk) -> list[ir.Value]:
        """Start the walk; return the cotangent inputs."""
        own = {v.name: v for v in self.model.graph.outputs}
        inputs = []
        for name in self.outputs:
            value = own[name]
            if self.seed is None:
                cotangent = ir.Value(
                    name=op.fresh(f"{name}_grad"), shape=value.shape, type=value.type
                )
                inputs.append(cotangent)
            else:
                _expect_scalar(value)
                cotangent = op.full_like(value, self.seed)
            walk.add(value, cotangent)
        return inputs

    def _gradients(self, op: Builder, walk: Walk, wrt: list[ir.Value]) -> list[ir.Value]:
        """Return one fresh, named value per gradient, zeros where nothing depends on it."""
        gradients, seen = [], set()
        for value in wrt:
            gradient = walk.cotangent(value)
            if gradient is None:
                gradient = op.full_like(value, 0)
            # An output is a node's own: not an input, a forward value, or another gradient.
            node = gradient.producer()
            if gradient in seen or node is None or node.graph is not None:
                gradient = op.copy(gradient)
            seen.add(gradient)
            gradients.append(gradient)
        return gradients

    def _assemble(self, op, wrt, cotangents, gradients) -> None:
        graph = self.model.graph
        graph.inputs.extend(cotangents)
        op.finish(gradients)
        for value, gradient in zip(wrt, gradients, strict=True):
            gradient.name = op.fresh(f"{value.name}_grad")
            gradient.shape, gradient.type = value.shape, value.type
            graph.outputs.append(gradient)
        if self.parameters == "inputs":
            for value in wrt:
                make_input(graph, value)


def _expect_scalar(value: ir.Value) -> None:
    shape = value.shape
    if shape is not None and any(d != 1 for d in shape):
        raise ValueError(
            f"output {value.name!r} has shape [{', '.join(map(str, shape))}], expected a scalar; "
            "use vjp for a tensor, with a cotangent of its shape"
        )


def _names(what: str, names: Any) -> list[str] | None:
    """Check a list of names; one string is a mistake that would be read letter by letter."""
    if names is None:
        return None
    if isinstance(names, str):
        raise ValueError(f"{what} is the string {names!r}, expected a list of names")
    names = list(names)
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"{what} holds a {type(name).__name__}, expected names")
    return list(dict.fromkeys(names))
