"""Loop and Scan: the gradient is another one, which runs the gradient of the body from the last step.

What a step computes for its own backward pass is stacked by new outputs of the forward node, and
read back row by row. States on the way back are the cotangents of the forward states, and one sum
for each outer value that the body reads.
"""

from dataclasses import dataclass, field

import onnx_ir as ir

from onnxgrad.autodiff.rule import NoGradient, rule
from onnxgrad.graph.bodies import bodies, replace_reads
from onnxgrad.graph.bodies import captured as read_by
from onnxgrad.graph.builder import RANDOM
from onnxgrad.graph.repeats import Row, repeat_of


@rule("Loop", wrt="")
def loop(op, dv_final_and_scan_outputs, *, node, captured, inside, active):
    """The number of steps is that of the rows that the forward node stacked."""
    return _gradients(op, node, dv_final_and_scan_outputs, captured, inside, active)


@rule("Scan", wrt="")
def scan(op, dfinal_state_and_scan_outputs, *, node, captured, inside, active):
    """As Loop; slices get their gradients row by row."""
    return _gradients(op, node, dfinal_state_and_scan_outputs, captured, inside, active)


@dataclass
class _Step:
    """The body of the backward node: what it reads, and from where."""

    op: object
    states: list = field(default_factory=list)  # pairs of (outer value, its name inside)
    rows: list[Row] = field(default_factory=list)

    def state(self, outer, like):
        inner = self._input(like, _known(like))
        self.states.append((outer, inner))
        return inner

    def row(self, outer, like, axis, backwards):
        inner = self._input(like, _known(like))
        self.rows.append(Row(outer, inner, axis, backwards))
        return inner

    def _input(self, like, shape):
        value = ir.Value(name=self.op.fresh("grad/step_input"), shape=shape)
        value.dtype = like.dtype
        return value


def _gradients(op, node, cotangents, captured, inside, active):
    repeat, step = repeat_of(node), _Step(op)
    states = [s for s in repeat.states if active(s.before)]
    slices = [r for r in repeat.slices if active(r.inner)]
    given = dict(zip(node.outputs, cotangents, strict=False))
    inner = _body_cotangents(op, repeat, states, given, step)
    wrt = [*(s.before for s in states), *(r.inner for r in slices), *captured]
    nodes, gradients = inside(repeat.body, inner, wrt)
    sums = _add_up(op, step, nodes, captured, gradients[len(states) + len(slices) :])
    _read_back(op, repeat, step, nodes)
    results = [
        *gradients[: len(states)],
        *sums,
        *gradients[len(states) : len(states) + len(slices)],
    ]
    if node.op_type == "Scan":
        made = _write_scan(op, step, nodes, results, slices)
    else:
        made = _write_loop(op, step, nodes, results)
    targets = [*(s.initial for s in states), *captured, *(r.outer for r in slices)]
    return _collect(op, targets, made)


def _body_cotangents(op, repeat, states, given, step):
    """One for each output of the body: a state on the way back, a row, or nothing."""
    inner = [None] * len(repeat.body.outputs)
    first = len(inner) - len(repeat.states) - len(repeat.stacked)  # Loop's condition comes first
    for i, state in enumerate(repeat.states):
        if state in states:
            d = given.get(state.final)
            d = op.full_like(state.final, 0) if d is None else d
            inner[first + i] = step.state(d, state.before)
    for i, row in enumerate(repeat.stacked, first + len(repeat.states)):
        if given.get(row.outer) is not None:
            inner[i] = step.row(given[row.outer], row.inner, row.axis, not row.backwards)
    return inner


def _add_up(op, step, nodes, captured, gradients):
    """Sum the gradients of outer values over the steps."""
    sums = []
    for value, gradient in zip(captured, gradients, strict=True):
        so_far = step.state(op.full_like(value, 0), value)
        add = ir.Node("", "Add", [so_far, gradient], num_outputs=1)
        total = add.outputs[0]
        total.name, total.dtype, total.shape = op.fresh("grad/step_sum"), value.dtype, _known(value)
        nodes.append(add)
        sums.append(total)
    return sums


def _read_back(op, repeat, step, nodes):
    """Let backward nodes read the values of a forward step as rows that it stacked.

    Rows have one shape. What a step makes in a shape of its own is made anew, from rows and from
    what the body reads: the bags of an EmbeddingBag have as many words as each has.
    """
    own, slices, kept = repeat.inner(), {r.inner: r for r in repeat.slices}, {}
    reads = [v for n in nodes for v in (*n.inputs, *read_by(n)) if v is not None]
    anew = _made_anew(repeat.body, own, reads)

    def outer(value):
        if value not in own:
            return value
        if value not in kept:
            row = slices.get(value) or _stack(op, repeat, value)
            kept[value] = step.row(row.outer, value, row.axis, not row.backwards)
        return kept[value]

    again = []
    for node in [n for n in repeat.body if n in anew]:
        inputs = [None if v is None else outer(v) for v in node.inputs]
        copy = ir.Node(
            node.domain, node.op_type, inputs, node.attributes.values(),
            num_outputs=len(node.outputs), name=op.fresh(f"{node.name or node.op_type}/again"),
        )  # fmt: skip
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            new.name = op.fresh(f"{old.name}/again") if old.name else old.name
            new.type, new.shape = old.type, old.shape
            kept[old] = new
        again.append(copy)
    for value in reads:
        outer(value)
    if not step.rows:  # steps are counted by rows
        outer(repeat.body.inputs[0] if not repeat.slices else repeat.slices[0].inner)
    replace_reads(nodes, outer)
    nodes[:0] = again


# Operators that give another shape for other numbers in the inputs from the one listed here on.
_SHAPED_BY = {
    "Slice": 1, "Reshape": 1, "Expand": 1, "Tile": 1, "Pad": 1, "Compress": 1, "TopK": 1, "Resize": 1,
    "Range": 0, "ConstantOfShape": 0, "NonZero": 0,
}  # fmt: skip


def _made_anew(body, own, reads):
    """The nodes of a body to run again on the way back: those whose results change in shape."""
    changing = set()
    for node in body:
        first = _SHAPED_BY.get(node.op_type, len(node.inputs)) if not node.domain else 0
        shaped = any(v in own for v in node.inputs[first:])
        if shaped or any(v in changing for v in node.inputs):
            changing.update(v for v in node.outputs if _varies(v))
    found, waiting = set(), list(reads)
    while waiting:
        value = waiting.pop()
        node = value.producer()
        if value not in changing or node in found or bodies(node) or node.op_type in RANDOM:
            continue
        found.add(node)
        waiting.extend(v for v in node.inputs if v is not None)
    return found


def _varies(value):
    """Say whether a size may differ from step to step: it has neither a number nor a name."""
    made_up = (d.value is None or d.value.startswith("unk__") for d in value.shape or ()
               if not isinstance(d, int))  # fmt: skip
    return value.shape is None or any(made_up)


def _stack(op, repeat, value):
    """A new output of the forward node that keeps a value of every step."""
    node, body = repeat.node, repeat.body
    copy = ir.Node("", "Identity", [value], num_outputs=1)
    row = copy.outputs[0]
    row.name, row.dtype, row.shape = op.fresh(f"{value.name}/row"), value.dtype, _known(value)
    body.append(copy)
    body.outputs.append(row)
    for name in ("scan_output_axes", "scan_output_directions"):
        if name in node.attributes:
            node.attributes[name] = ir.AttrInt64s(name, [*node.attributes[name].value, 0])
    node.resize_outputs(len(node.outputs) + 1)
    new = node.outputs[-1]
    new.name, new.dtype = op.fresh(f"{value.name}/kept"), value.dtype
    new.shape = ir.Shape([None, *row.shape])
    return Row(new, row)


def _known(value):
    """The shape inside a step. onnxruntime wants to know the rank of all that a Scan handles."""
    if value.shape is None or value.dtype is None:
        raise NoGradient(
            f"the rank of {value.name!r} is unknown inside its body, or changes from step to step",
            "state the shapes of the model's inputs, or unroll it when the model is exported",
        )
    return ir.Shape([d if isinstance(d, int) else None for d in value.shape])


def _write_loop(op, step, nodes, results):
    """Write the backward Loop; return its results.

    Not a Scan: onnxruntime's fails where there is no step at all.
    """
    count = op.Squeeze(op.dim(step.rows[0].outer, 0), [0])
    last = op.Sub(count, 1)
    number, go = (ir.Value(name=op.fresh(f"grad/step_{name}")) for name in ("number", "go"))
    for value, kind in ((number, ir.DataType.INT64), (go, ir.DataType.BOOL)):
        value.dtype, value.shape = kind, ir.Shape([])
    at, goes_on = ir.Node("", "Sub", [last, number]), ir.Node("", "Identity", [go])
    for made, like in ((at, number), (goes_on, go)):
        value = made.outputs[0]
        value.name, value.dtype, value.shape = op.fresh("grad/step"), like.dtype, like.shape
    axis = ir.AttrInt64("axis", 0)
    reads = [
        ir.Node("", "Gather", [r.outer, at.outputs[0]], [axis], outputs=[r.inner])
        for r in step.rows
    ]
    inputs = [number, go, *(inner for _, inner in step.states)]
    nodes = [at, goes_on, *reads, *nodes]
    body = ir.Graph(
        inputs, [goes_on.outputs[0], *results], nodes=nodes, name=op.fresh("grad/steps")
    )
    outer = [count, None, *(v for v, _ in step.states)]
    return op.emit("Loop", outer, {"body": body}, outputs=[True] * len(results))


def _write_scan(op, step, nodes, results, slices):
    """Write the backward Scan; return its results."""
    inputs = [inner for _, inner in step.states] + [r.inner for r in step.rows]
    body = ir.Graph(inputs, results, nodes=nodes, name=op.fresh("grad/steps"))
    attributes = {
        "body": body,
        "num_scan_inputs": len(step.rows),
        "scan_input_axes": [r.axis for r in step.rows],
        "scan_input_directions": [int(r.backwards) for r in step.rows],
        "scan_output_axes": [r.axis for r in slices],
        "scan_output_directions": [int(not r.backwards) for r in slices],
    }
    if not slices:
        del attributes["scan_output_axes"], attributes["scan_output_directions"]
    outer = [v for v, _ in step.states] + [r.outer for r in step.rows]
    return op.emit("Scan", outer, attributes, outputs=[True] * len(results))


def _collect(op, targets, made):
    """Name the gradients by the outer values; one that enters twice gets the sum."""
    found = {}
    for target, gradient in zip(targets, made, strict=True):
        gradient.dtype, gradient.shape = target.dtype, target.shape
        found.setdefault(target, []).append(gradient)
    return {target: op.Sum(*parts) for target, parts in found.items()}
