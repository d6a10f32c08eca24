"""When a gradient is wrong: the operator whose own gradient is, found by checking nodes one by one, last first."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxgrad import ort
from onnxgrad.autodiff import vjp
from onnxgrad.autodiff.examine import examine
from onnxgrad.autodiff.plan import describe
from onnxgrad.checking.forward import quiet
from onnxgrad.checking.problem import Problem

MOST_NODES = 500


def find_culprit(problem: Problem) -> str:
    """A description of the first node, from the outputs back, whose gradient central differences refute."""
    examination = examine(problem.model, None, None)
    active = {v.name for v in examination.active}
    nodes = [n for n in examination.model.graph if any(v.name in active for v in n.outputs)][
        -MOST_NODES:
    ]
    values = _forward_values(examination.model, nodes, problem)
    for node in reversed(nodes):
        if _is_wrong(node, examination.model, values, active, problem):
            return describe(node)
    return ""


def _forward_values(
    model: ir.Model, nodes: list[ir.Node], problem: Problem
) -> dict[str, np.ndarray]:
    """What every node reads, from one run with all of it as outputs."""
    copy = model.clone()
    wanted = {v.name for n in nodes for v in n.inputs if v is not None and v.producer() is not None}
    known = {v.name for v in copy.graph.outputs}
    for node in copy.graph:
        copy.graph.outputs.extend(v for v in node.outputs if v.name in wanted - known)
    session = ort.session(ir.to_proto(copy), quiet())
    inputs = {i.name for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    feeds = problem.for_runtime(problem.feeds)
    given = {k: v for k, v in feeds.items() if k in inputs}
    results = dict(zip(names, session.run(names, given), strict=True))
    constants = {
        n: v.const_value.numpy()
        for n, v in copy.graph.initializers.items()
        if v.const_value is not None
    }
    return {**constants, **feeds, **results}


def _is_wrong(node: ir.Node, model: ir.Model, values, active: set[str], problem: Problem) -> bool:
    """Whether the node alone fails; a node that cannot be tried alone is not suspected.

    What it reads may lie on a kink, such as equal numbers for MaxPool: it must fail beside it too.
    """
    if not _fails(_single(node, model, values, active), problem):
        return False
    moved = {n: _moved(a, problem.seed) if n in active else a for n, a in values.items()}
    return _fails(_single(node, model, moved, active), problem, otherwise=True)


def _moved(array: np.ndarray, seed: int) -> np.ndarray:
    """The array with a little noise, which parts numbers that are equal."""
    if array.dtype.kind != "f":
        return array
    noise = np.random.default_rng(seed).uniform(-1, 1, array.shape)
    return (array + 0.01 * float(np.std(array)) * noise).astype(array.dtype)


def _fails(single: ir.Model | None, problem: Problem, otherwise: bool = False) -> bool:
    """Whether central differences refute the gradients of a model of one node; `otherwise` if none can tell."""
    if single is None:
        return False
    try:
        alone = Problem(single, {}, problem.precision, problem.seed)
        rows = [alone.row(name, 2) for name in alone.parameters]
    except Exception:
        return otherwise
    if not all(np.isfinite(row.error) for row in rows):
        return otherwise
    return any(not row.good for row in rows)


def _single(node: ir.Node, model: ir.Model, values, active: set[str]) -> ir.Model | None:
    """A model of one node; what it reads become initializers, those with a gradient of rank 1 at least."""
    renamed: dict[str, ir.Value] = {}
    for value in node.inputs:
        if value is not None and value.name not in renamed:
            array = (
                np.atleast_1d(values[value.name]) if value.name in active else values[value.name]
            )
            renamed[value.name] = ir.Value(
                name=value.name, const_value=ir.tensor(array, name=value.name)
            )
            renamed[value.name].dtype = ir.DataType.from_numpy(array.dtype)
            renamed[value.name].shape = ir.Shape(array.shape)
    inputs = [renamed[v.name] if v is not None else None for v in node.inputs]
    copy = ir.Node(
        node.domain,
        node.op_type,
        inputs,
        node.attributes.values(),
        num_outputs=len(node.outputs),
        name="one",
    )
    for new, old in zip(copy.outputs, node.outputs, strict=True):
        new.name, new.dtype = old.name, old.dtype
    outputs = [
        new for new, old in zip(copy.outputs, node.outputs, strict=True) if old.name in active
    ]
    graph = ir.Graph(
        [],
        outputs,
        nodes=[copy],
        initializers=list(renamed.values()),
        opset_imports=dict(model.opset_imports),
        name="one",
    )
    single = ir.Model(graph, ir_version=model.ir_version or 8)
    try:
        vjp(single)
    except Exception:
        return None  # a node without a gradient of its own
    return single
