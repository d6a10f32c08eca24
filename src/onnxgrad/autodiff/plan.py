"""Before the walk: which nodes lie between `wrt` and the outputs, and which cannot be passed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxgrad.autodiff.inline import body
from onnxgrad.autodiff.rule import FUSED, REFUSED, STANDARD, Refusal, Rule, find
from onnxgrad.contracts import DOMAIN, contracts
from onnxgrad.errors import GradientError
from onnxgrad.graph.bodies import bodies, captured, is_branch
from onnxgrad.graph.repeats import Repeat, is_repeat, repeat_of
from onnxgrad.graph.schemas import Signature, signature

FLOATS = (
    ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16,
)  # fmt: skip
# Integers that stand for floats: those made by QuantizeLinear carry a cotangent in floats.
QUANTISED = (
    ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16, ir.DataType.INT4,
    ir.DataType.UINT4, ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E5M2,
)  # fmt: skip
FUSED_TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE, None)


@dataclass(frozen=True)
class Problem:
    """A node that stands in the way."""

    node: ir.Node
    because: str
    instead: str
    cause: Exception | None = None

    def __str__(self) -> str:
        return f"  {describe(self.node)}: {self.because}\n    {self.instead}"


@dataclass
class Plan:
    """The nodes to walk, in forward order, and the values that carry a gradient.

    Bodies have plans of their own, which share all but the nodes with this one.
    """

    nodes: list[ir.Node] = field(default_factory=list)
    active: set[ir.Value] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    inline: list[ir.Node] = field(default_factory=list)
    bodies: dict[ir.Graph, Plan] = field(default_factory=dict)


def make_plan(
    model: ir.Model, outputs: Iterable[ir.Value], wrt: Iterable[ir.Value], ops: str
) -> Plan:
    """Find the path from `wrt` to `outputs`, and what on it has no gradient."""
    reached = set(wrt)
    _reach(model.graph, reached, model.opset_imports)
    plan = Plan(active={v for v in outputs if v in reached})
    _trace(model.graph, plan, reached, model.opset_imports)
    _check_all(plan, model.opset_imports, ops)
    return plan


def _reach(graph: ir.Graph, reached: set[ir.Value], opset_of: dict[str, int]) -> None:
    """Add to `reached` every float that depends on it."""
    for node in graph:
        inputs = [v for v in (*node.inputs, *captured(node)) if v in reached]
        if not inputs:
            continue
        if is_branch(node):
            for body in bodies(node):
                _reach(body, reached, opset_of)
                pairs = zip(node.outputs, body.outputs, strict=True)
                reached.update(v for v, inner in pairs if inner in reached)
        elif is_repeat(node):
            _reach_steps(repeat_of(node), reached, opset_of)
        elif not _stops(node, inputs, opset_of):
            quantised = node.op_type == "QuantizeLinear" or any(
                v.dtype in QUANTISED for v in inputs
            )
            reached.update(
                v for v in node.outputs if is_float(v) or (quantised and v.dtype in QUANTISED)
            )


def _reach_steps(repeat: Repeat, reached: set[ir.Value], opset_of: dict[str, int]) -> None:
    """A state that one step makes depend on something depends on it in the next step, too."""
    reached.update(row.inner for row in repeat.slices if row.outer in reached)
    size = -1
    while size != len(reached):
        size = len(reached)
        for s in repeat.states:
            if is_float(s.before) and (s.initial in reached or s.after in reached):
                reached.update((s.before, s.final))
        _reach(repeat.body, reached, opset_of)
    reached.update(row.outer for row in repeat.stacked if row.inner in reached)


def _trace(graph: ir.Graph, plan: Plan, reached: set[ir.Value], opset_of) -> None:
    """Collect the nodes on which the active values of a graph depend, among the reached."""
    for node in reversed(list(graph)):
        if not any(v in plan.active for v in node.outputs):
            continue
        if is_branch(node):
            for body in bodies(node):
                pairs = zip(node.outputs, body.outputs, strict=True)
                wanted = [inner for v, inner in pairs if v in plan.active and inner in reached]
                plan.active.update(wanted)
                inner = Plan([], plan.active, plan.problems, plan.inline, plan.bodies)
                plan.bodies[body] = inner
                _trace(body, inner, reached, opset_of)
        elif is_repeat(node):
            _trace_steps(repeat_of(node), plan, reached, opset_of)
        before = [v for v in _through(node, opset_of) if v in reached]
        if before:
            plan.nodes.append(node)
        if not bodies(node):
            plan.active.update(before)
    plan.nodes.reverse()


def _trace_steps(repeat: Repeat, plan: Plan, reached: set[ir.Value], opset_of) -> None:
    """A state that a step needs the gradient of needs it of the step before, and of its initial."""
    active = plan.active
    active.update(r.inner for r in repeat.stacked if r.outer in active and r.inner in reached)
    size = -1
    while size != len(active):
        size = len(active)
        for s in repeat.states:
            if s.before in reached and (s.final in active or s.before in active):
                active.update(v for v in (s.before, s.after, s.initial) if v in reached)
        plan.bodies[repeat.body] = Plan([], active, plan.problems, plan.inline, plan.bodies)
        _trace(repeat.body, plan.bodies[repeat.body], reached, opset_of)
    active.update(row.outer for row in repeat.slices if row.inner in active)


def _check_all(plan: Plan, opset_of: dict[str, int], ops: str) -> None:
    for each in (plan, *plan.bodies.values()):
        for node in each.nodes:
            _check(node, plan, opset_of, ops)


def refuse(plan: Plan, of: str) -> None:
    """Raise the one GradientError that names every node that stands in the way, if any does."""
    if not plan.problems:
        return
    count = len(plan.problems)
    lines = "\n".join(str(p) for p in plan.problems)
    nodes = "1 node stands" if count == 1 else f"{count} nodes stand"
    cause = next((p.cause for p in plan.problems if p.cause is not None), None)
    raise GradientError(
        f"the gradient of {of} cannot be built: {nodes} in the way\n{lines}"
    ) from cause


def describe(node: ir.Node) -> str:
    """Name a node for a message: by its name, else by what it makes."""
    op = node.op_type if not node.domain else f"{node.domain}.{node.op_type}"
    who = f"node {node.name!r}" if node.name else f"the node that makes {node.outputs[0].name!r}"
    return f"{who} ({op})"


def is_float(value: ir.Value) -> bool:
    """Say whether a value can carry a gradient; an unknown type counts as float."""
    return value.dtype is None or value.dtype in FLOATS


def names_of(node: ir.Node, opset_of: dict[str, int], chosen: Rule | None) -> Signature | None:
    """Return the signature by which a node's inputs are named."""
    if chosen is not None and chosen.names is not None:
        return chosen.names
    own = signature(node.op_type, opset_of.get(node.domain, 1), node.domain)
    # onnxruntime had LayerNormalization before ONNX did, and saves it in models of older opsets.
    return own or signature(node.op_type, 1 << 20, node.domain)


def choose(node: ir.Node, opset_of: dict[str, int], ops: str) -> list[Rule]:
    """Return the rules that apply to a node, the one to try first at the front."""
    sig = signature(node.op_type, opset_of.get(node.domain, 1), node.domain)
    version = sig.version if sig else opset_of.get(node.domain, 1)
    standard = find(STANDARD, node.op_type, node.domain, version)
    fused = find(FUSED, node.op_type, node.domain, version)
    types = {v.dtype for v in (*node.inputs, *node.outputs) if v is not None and is_float(v)}
    use_fused = ops == "fused" and types.issubset(FUSED_TYPES)
    return [r for r in (fused if use_fused else None, standard) if r is not None]


def _stops(node: ir.Node, active: list[ir.Value], opset_of: dict[str, int]) -> bool:
    """Say whether no gradient passes: it is known to be zero, or inputs are declared `stop`."""
    refusal = REFUSED.get((node.domain, node.op_type))
    if refusal is not None:
        return refusal.zero
    through = set(_through(node, opset_of))
    return not any(v in through for v in active)


def _through(node: ir.Node, opset_of: dict[str, int]) -> list[ir.Value]:
    """Return what a node reads, without the inputs that its rule declares `stop`."""
    rules = choose(node, opset_of, "standard") or choose(node, opset_of, "fused")
    if not rules or not rules[0].stop:
        return [*node.inputs, *captured(node)]
    names = names_of(node, opset_of, rules[0])
    return [v for i, v in enumerate(node.inputs) if names.input_name(i) not in rules[0].stop]


def _check(node: ir.Node, plan: Plan, opset_of: dict[str, int], ops: str) -> None:
    rules = choose(node, opset_of, ops)
    if rules and bodies(node):
        return  # its rule gives the gradients of all that its bodies read
    if rules:
        names = names_of(node, opset_of, rules[0])
        given = rules[0].wrt | rules[0].stop
        for i, value in enumerate(node.inputs):
            name = names.input_name(i)
            if value in plan.active and name not in given:
                plan.problems.append(
                    Problem(
                        node,
                        f"its rule gives no gradient of input {name!r}",
                        f"leave what {value.name!r} depends on out of wrt, "
                        f"or write a rule with onnxgrad.rule({node.op_type!r}, {name}=...)",
                    )
                )
        return
    refusal: Refusal | None = REFUSED.get((node.domain, node.op_type))
    if refusal is not None:
        plan.problems.append(Problem(node, refusal.because, refusal.instead))
    elif ops == "standard" and (node.domain, node.op_type) in FUSED:
        plan.problems.append(
            Problem(node, "has a gradient by onnxgrad's own operators only", 'use ops="fused"')
        )
    elif (node.domain, node.op_type) in FUSED:
        plan.problems.append(
            Problem(node, "has a gradient for float and double only", "convert the model to float")
        )
    elif body(node, opset_of.get(node.domain, 1)) is not None:
        plan.inline.append(node)
    elif node.domain == DOMAIN and node.op_type in contracts():
        plan.problems.append(
            Problem(
                node,
                "is a gradient itself, by an operator of onnxgrad, and those have no second derivative",
                'build the first gradient with ops="standard", and differentiate that',
            )
        )
    else:
        domain = f", domain={node.domain!r}" if node.domain else ""
        plan.problems.append(
            Problem(
                node,
                "has no gradient rule yet",
                f"add one with onnxgrad.rule({node.op_type!r}{domain}, ...), "
                "or leave the parameters before it out of wrt",
            )
        )
