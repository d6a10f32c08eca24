"""The reverse walk: from cotangents of the outputs to cotangents of everything before them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxgrad.autodiff.plan import QUANTISED, Plan, Problem, choose, names_of
from onnxgrad.autodiff.rule import Formula, Need, NoGradient, Rule
from onnxgrad.graph import Builder, ShapeUnknown, Signature
from onnxgrad.graph.bodies import captured
from onnxgrad.graph.infer import dims


class Walk:
    """Cotangents of values, filled in from the outputs backwards. None is zero."""

    def __init__(self, op: Builder, plan: Plan, ops: str):
        self.op, self.plan, self.ops = op, plan, ops
        self._terms: dict[ir.Value, list[ir.Value]] = {}
        self._total: dict[ir.Value, ir.Value] = {}

    def add(self, value: ir.Value, cotangent: ir.Value | None) -> None:
        """Add to the cotangent of a value."""
        if cotangent is not None:
            self._terms.setdefault(value, []).append(cotangent)

    def cotangent(self, value: ir.Value) -> ir.Value | None:
        """Return the sum of all that was added; None is zero."""
        if value in self._terms:
            self._total[value] = self.op.Sum(*self._terms.pop(value))
            _stamp(self._total[value], value)
        return self._total.get(value)

    def run(self) -> None:
        """Visit every node of the plan, last first."""
        for node in reversed(self.plan.nodes):
            cotangents = [self.cotangent(v) for v in node.outputs]
            if any(c is not None for c in cotangents):
                try:
                    self._visit(node, cotangents)
                except NoGradient as refusal:
                    self.plan.problems.append(Problem(node, refusal.because, refusal.instead))
                except ShapeUnknown as unknown:
                    instead = "state the shapes and types of the model's inputs, or simplify it"
                    self.plan.problems.append(Problem(node, str(unknown), instead))
                except Exception as error:  # a malformed node must not end in a traceback
                    because = f"its rule failed: {type(error).__name__}: {error}"
                    instead = "check the node with onnx.checker, or the rule when it is your own"
                    self.plan.problems.append(Problem(node, because, instead, error))

    def inside(
        self, body: ir.Graph, cotangents: list[ir.Value | None], wrt: list[ir.Value]
    ) -> tuple[list[ir.Node], list[ir.Value]]:
        """Differentiate a body; return its backward nodes and the gradients of `wrt`.

        The nodes may read values of the body, which is left as it is.
        """
        plan = self.plan.bodies.get(body, Plan())
        inner = Walk(self.op.inside(body), plan, self.ops)
        for value, cotangent in zip(body.outputs, cotangents, strict=True):
            if value in plan.active and cotangent is not None:
                # Of an unknown shape: each branch has its own, which the other must not see.
                own = inner.op.copy(cotangent) if cotangent.shape is None else cotangent
                inner.add(value, own)
        inner.run()
        gradients = []
        for value in wrt:
            gradient = inner.cotangent(value)
            gradient = inner.op.full_like(value, 0) if gradient is None else gradient
            gradients.append(inner.op.copy(gradient))  # a result is a node's own, inside its body
            _stamp(gradients[-1], value)
        return inner.op.finish_body(gradients), gradients

    def _visit(self, node: ir.Node, cotangents: list[ir.Value | None]) -> None:
        opset_of = self.op.model.opset_imports
        for rule in choose(node, opset_of, self.ops):
            call = Call(self, node, rule, names_of(node, opset_of, rule), cotangents)
            gradients = call.gradients()
            if gradients is not NotImplemented:
                for value, gradient in gradients:
                    self.add(value, gradient)
                return
        raise NoGradient(
            "has no gradient in standard operators in this form",
            'use ops="fused", or leave the parameters before it out of wrt',
        )


class Call:
    """One node meets its rule: names are bound to values, and gradients back to inputs."""

    def __init__(
        self,
        walk: Walk,
        node: ir.Node,
        rule: Rule,
        names: Signature,
        cotangents: list[ir.Value | None],
    ):
        self.walk, self.op, self.node, self.rule, self.names = walk, walk.op, node, rule, names
        self.cotangents, self.active = cotangents, walk.plan.active
        self.wanted: dict[str, list[ir.Value | None]] = {}
        for name in rule.wrt:
            values = _pick(node.inputs, names.inputs, name, names)
            values = values if isinstance(values, list) else [values]
            if any(v in self.active for v in values):
                self.wanted[name] = values

    def gradients(self) -> Any:
        """Return pairs of (input value, its gradient), or NotImplemented."""
        pairs: list[tuple[ir.Value, ir.Value | None]] = []
        self._expect_use_of_cotangents()
        for formula in self.rule.formulas:
            need = Need.of(formula.wrt, self.wanted)
            if not need and formula.wrt:
                continue
            result = self._evaluate(formula, need)
            if result is NotImplemented:
                return NotImplemented
            for name, gradient in _by_name(formula, result).items():
                pairs.extend(self._settle(name, gradient))
        return pairs

    def _expect_use_of_cotangents(self) -> None:
        """A cotangent that no formula takes would be lost without a word."""
        used = {name for formula in self.rule.formulas for name in formula.values}
        for i, cotangent in enumerate(self.cotangents):
            name = self.names.outputs[min(i, len(self.names.outputs) - 1)]
            if cotangent is not None and f"d{name}" not in used:
                raise NoGradient(
                    f"its rule takes no cotangent of output {name!r}",
                    f"use {self.node.outputs[i].name!r} nowhere on the way to the outputs, "
                    f"or write a rule with onnxgrad.rule({self.node.op_type!r}, ...)",
                )

    def _evaluate(self, formula: Formula, need: Need) -> Any:
        cotangents = {f"d{name}" for name in self.names.outputs} & set(formula.values)
        values = {name: self._bind(name) for name in formula.values}
        if all(_is_zero(values[name]) for name in cotangents):
            return None
        return formula.function(
            self.op, **values, **{k: self._keyword(k, d, need) for k, d in formula.keywords.items()}
        )

    def _settle(self, name: str | ir.Value, gradient: Any) -> Iterable[tuple[ir.Value, Any]]:
        """Give a gradient the shape and the type of the input it belongs to."""
        if isinstance(name, ir.Value):
            targets, gradients = [name], [gradient]
        else:
            targets = self.wanted.get(name, [])
            gradients = gradient if isinstance(gradient, (list, tuple)) else [gradient]
        for value, part in zip(targets, gradients, strict=False):
            if value in self.active and part is not None:
                yield value, self._fit(part, value)

    def _fit(self, gradient: ir.Value, value: ir.Value) -> ir.Value:
        if self.rule.broadcast:
            whole = self.node.outputs[0]
            if gradient.shape is None:
                _stamp(gradient, whole)
            gradient = self.op.sum_to(gradient, value)
        floats = value.dtype is not None and value.dtype not in QUANTISED
        if floats and gradient.dtype is not None:
            gradient = self.op.Cast(gradient, to=value.dtype)
        _stamp(gradient, value)
        return gradient

    def _bind(self, name: str) -> Any:
        names = self.names
        if name in names.inputs:
            return _pick(self.node.inputs, names.inputs, name, names)
        if name in names.outputs:
            return self._output(names.outputs.index(name), name)
        if name[0] == "d" and name[1:] in names.outputs:
            return _pick(self.cotangents, names.outputs, name[1:], names)
        if name in names.attributes:  # an input that this version still has as an attribute
            value = self._attribute(name)
            if value is None:
                return None
            return self.op.constant(np.asarray(value))
        return None

    def _output(self, index: int, name: str) -> Any:
        outputs = self.node.outputs
        if name in self.names.variadic:
            return list(outputs[index:])
        if index < len(outputs) and outputs[index].name:
            return outputs[index]
        if index >= len(outputs):
            self.node.resize_outputs(index + 1)
        for i, value in enumerate(self.node.outputs):
            if value.name is None:
                value.name = ""
            if i == index:
                stem = next((v.name for v in self.node.outputs if v.name), self.node.op_type)
                value.name = self.op.fresh(f"{stem}/{name}")
                value.dtype = _only_type(self.node, self.op.model.opset_imports, index)
        return self.node.outputs[index]

    def _keyword(self, name: str, default: Any, need: Need) -> Any:
        if name == "need":
            return need
        if name == "node":
            return self.node
        if name == "forward":
            return self._bind
        if name == "attrs":
            return {k: a.value for k, a in self.node.attributes.items()}
        if name == "captured":
            return [v for v in captured(self.node) if v in self.active]
        if name == "inside":
            return self.walk.inside
        if name == "active":
            return self.active.__contains__
        value = self._attribute(name)
        return default if value is None and default is not inspect.Parameter.empty else value

    def _attribute(self, name: str) -> Any:
        if name in self.node.attributes:
            return self.node.attributes[name].value
        return self.names.attributes.get(name)


def _pick(values: Any, names: tuple[str, ...], name: str, sig: Signature) -> Any:
    """Return the value at the position of `name`, a list of them for a variadic one."""
    index = names.index(name)
    if name in sig.variadic:
        return list(values[index:])
    return values[index] if index < len(values) else None


def _is_zero(cotangent: Any) -> bool:
    if isinstance(cotangent, list):
        return all(c is None for c in cotangent)
    return cotangent is None


def _by_name(formula: Formula, result: Any) -> dict[Any, Any]:
    if result is None:
        return {}
    if isinstance(result, dict):
        return result
    if len(formula.wrt) == 1:
        single = isinstance(result, tuple) and len(result) == 1
        return {formula.wrt[0]: result[0] if single else result}
    return dict(zip(formula.wrt, result, strict=True))


def _stamp(gradient: ir.Value, value: ir.Value) -> None:
    """A cotangent has the shape and type of its value, whatever inference could tell."""
    if value.shape is not None and gradient.producer() is not None:
        known = dims(gradient)
        if known is None or (None in known and len(known) == len(value.shape)):
            gradient.shape = value.shape
    if gradient.dtype is None:
        gradient.dtype = value.dtype


def _same_type(schema, node: ir.Node, kind: str) -> ir.DataType | None:
    """Return the type of another value of the node that the schema gives the same type."""
    pairs = [*zip(schema.outputs, node.outputs, strict=False)]
    pairs += [*zip(schema.inputs, node.inputs, strict=False)]
    known = (v.dtype for formal, v in pairs if v is not None and formal.type_str == kind)
    return next((dtype for dtype in known if dtype is not None), None)


def _only_type(node: ir.Node, opset_of: dict[str, int], index: int) -> ir.DataType | None:
    """Return the type of an output where its schema allows one type only (indices, masks)."""
    schema = onnx.defs.get_schema(
        node.op_type, max_inclusive_version=opset_of.get(node.domain, 1), domain=node.domain
    )
    kind = schema.outputs[index].type_str
    allowed = next(
        (c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == kind), [kind]
    )
    if len(allowed) != 1:
        plain = ir.DataType.FLOAT if "tensor(float)" in allowed else None
        return _same_type(schema, node, kind) or plain
    return ir.DataType[allowed[0].removeprefix("tensor(").removesuffix(")").upper()]
