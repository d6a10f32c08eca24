"""`inspect(model)`: everything at once, as data. The command line prints it."""

from __future__ import annotations

import dataclasses
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from onnxgrad.autodiff.examine import Examination, examine
from onnxgrad.autodiff.plan import FLOATS, captured
from onnxgrad.graph.bodies import bodies
from onnxgrad.inspection.cost import Cost, estimate
from onnxgrad.inspection.ends import dead_ends
from onnxgrad.inspection.guess import Guess, guess
from onnxgrad.inspection.notes import notes
from onnxgrad.inspection.reading import read


@dataclass(frozen=True)
class TensorInfo:
    name: str
    type: str
    shape: list[int | str] | None


@dataclass(frozen=True)
class Parameter:
    """`why` says what keeps it from being trained; empty when nothing does."""

    name: str
    layer: str
    type: str
    shape: list[int]
    size: int
    trainable: bool
    why: str


@dataclass(frozen=True)
class Obstacle:
    """A node that stands between parameters and the outputs, and the operators after it."""

    node: str
    operator: str
    because: str
    instead: str
    path: list[str]
    blocks: int  # parameters


@dataclass(frozen=True)
class Inspection:
    source: str
    opset: int
    ir_version: int
    producer: str
    nodes: int
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]
    parameters: list[Parameter]
    obstacles: list[Obstacle]
    guess: Guess
    cost: Cost
    warnings: list[str]

    @property
    def trainable(self) -> bool:
        """Whether at least one parameter can be trained."""
        return any(p.trainable for p in self.parameters)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the schema is in docs/inspect.md."""
        return {"trainable": self.trainable, **dataclasses.asdict(self)}


def inspect(model: Any, *, batch: int = 1) -> Inspection:
    """Say what in `model` can be trained, what not and why, and what a step costs at that batch size.

    `model` is a path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`; it is not changed, and nothing is run.

    >>> import onnx
    >>> model = onnx.parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     scale (float[N, 2] x) => (float[N, 2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }''')
    >>> [p.name for p in inspect(model).parameters if p.trainable]
    ['w']

    Raises ModelError when there is no model to read.
    """
    original, prepared = read(model)
    examination = examine(prepared)
    graph = examination.model.graph
    examination.problems += dead_ends(examination)
    blocked = _blocked(examination)
    parameters = _parameters(examination, blocked)
    trainable = [v for v in examination.wrt if v in examination.active and v not in blocked]
    return Inspection(
        source=os.fspath(model) if isinstance(model, (str, os.PathLike)) else type(model).__name__,
        opset=original.opset_imports.get("", 0),
        ir_version=original.ir_version or 0,
        producer=" ".join(filter(None, (original.producer_name, original.producer_version))),
        nodes=len(original.graph),
        inputs=[
            _tensor(v) for v in original.graph.inputs if v.name not in original.graph.initializers
        ],
        outputs=[_tensor(v) for v in original.graph.outputs],
        parameters=parameters,
        obstacles=_obstacles(examination, blocked),
        guess=guess(examination.model),
        cost=estimate(examination.model, examination.active, trainable, batch),
        warnings=notes(original, examination.model) if len(graph) else [],
    )


def _tensor(value: ir.Value) -> TensorInfo:
    shape = (
        None
        if value.shape is None
        else [d if isinstance(d, int) else str(d.value or "?") for d in value.shape]
    )
    return TensorInfo(
        value.name or "", value.dtype.name.lower() if value.dtype else "unknown", shape
    )


def _blocked(examination: Examination) -> dict[ir.Value, str]:
    """Parameters from which an obstacle can be reached, each with the first such obstacle."""
    blocked: dict[ir.Value, str] = {}
    wrt = set(examination.wrt)
    for problem in examination.problems:
        seen, waiting = set(), deque([*problem.node.inputs, *captured(problem.node)])
        while waiting:
            value = waiting.popleft()
            if value is None or value in seen:
                continue
            seen.add(value)
            if value in wrt:
                who = problem.node.name or problem.node.op_type
                blocked.setdefault(
                    value, f"the gradient cannot pass {who!r} ({problem.node.op_type})"
                )
            producer = value.producer()
            if producer is not None:
                waiting.extend([*producer.inputs, *captured(producer)])
    return blocked


def _parameters(examination: Examination, blocked: dict[ir.Value, str]) -> list[Parameter]:
    """Every float tensor that could be a weight, trainable or not, and weights of other types."""
    rows = []
    candidates = dict.fromkeys(examination.wrt)
    candidates.update(dict.fromkeys(v for v in examination.weights if v.dtype in FLOATS))
    for value in sorted(candidates, key=_first_use(examination.model.graph)):
        why = blocked.get(value, "")
        if not why and value not in examination.active:
            why = _why_not(value, examination)
        shape = [int(d) for d in value.shape]
        size = 1
        for d in shape:
            size *= d
        name = value.name or ""
        rows.append(
            Parameter(name, _layer(name), value.dtype.name.lower(), shape, size, not why, why)
        )
    return rows


def _first_use(graph: ir.Graph) -> Callable[[ir.Value], int]:
    """A key that sorts values by the first node that reads them."""
    order = {node: number for number, node in enumerate(graph)}
    last = len(order)
    return lambda value: min((order.get(user, last) for user, _ in value.uses()), default=last)


def _why_not(value: ir.Value, examination: Examination) -> str:
    if value in examination.statistics:
        return "running statistics of BatchNormalization: updated, not trained"
    if not value.uses():
        return "nothing uses it"
    if len(value.shape) == 0:
        return "a scalar setting"
    return "no output depends on it in a differentiable way"


def _layer(name: str) -> str:
    """What comes before the last part of a name: `encoder.0.weight` → `encoder.0`."""
    for mark in (".", "/", "_"):
        if mark in name.strip(mark):
            return name.rpartition(mark)[0]
    return name


def _obstacles(examination: Examination, blocked: dict[ir.Value, str]) -> list[Obstacle]:
    rows, owners = [], _owners(examination.model.graph)
    for problem in examination.problems:
        node = problem.node
        operator = node.op_type if not node.domain else f"{node.domain}.{node.op_type}"
        name = node.name or (node.outputs[0].name if node.outputs else operator) or operator
        here = f"{(node.name or node.op_type)!r}"
        count = sum(here in reason for reason in blocked.values())
        path = _path(node, owners)
        rows.append(Obstacle(name, operator, problem.because, problem.instead, path, count))
    return rows


def _owners(graph: ir.Graph) -> dict[ir.Graph, ir.Node]:
    """Each body, with the node that has it."""
    nodes = ir.traversal.RecursiveGraphIterator(graph)
    return {body: node for node in nodes for body in bodies(node)}


def _path(node: ir.Node, owners: dict[ir.Graph, ir.Node]) -> list[str]:
    """The operators from the node to the nearest output, by the shortest way, out of its bodies."""
    waiting, seen = deque([(node, [])]), {node}
    while waiting:
        current, path = waiting.popleft()
        for value in current.outputs:
            users = [user for user, _ in value.uses()]
            if value.is_graph_output():
                if value.graph not in owners:
                    return [*path, f"output {value.name!r}"]
                users.append(owners[value.graph])
            for user in users:
                if user not in seen:
                    seen.add(user)
                    waiting.append((user, [*path, user.op_type]))
    return []
