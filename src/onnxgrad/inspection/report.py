"""`inspect(model)`: everything at once, as data. The command line prints it."""

from __future__ import annotations

import dataclasses
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import onnx_ir as ir

from onnxgrad.autodiff.examine import Examination, examine
from onnxgrad.autodiff.plan import Problem, captured
from onnxgrad.files.boundary import guarded
from onnxgrad.files.models import ModelFile
from onnxgrad.graph.bodies import bodies
from onnxgrad.inspection.cost import Cost, estimate
from onnxgrad.inspection.ends import dead_ends, problem_of
from onnxgrad.inspection.memory import Shapes, training_graph, with_sizes
from onnxgrad.inspection.notes import notes
from onnxgrad.inspection.reading import read
from onnxgrad.model.guess import Guess, guess
from onnxgrad.model.modes import computed_statistics
from onnxgrad.model.parameters import in_place_of_weights
from onnxgrad.model.roles import UNREACHED, Tensor
from onnxgrad.model.trainable import TrainableModel, judged_note
from onnxgrad.notes import Note


@dataclass(frozen=True)
class TensorInfo:
    name: str
    type: str
    shape: list[int | str] | None


@dataclass(frozen=True)
class Parameter:
    """A float tensor. `why` says what keeps "all" from training it; empty when nothing does.

    `possible`: naming it trains it.
    """

    name: str
    layer: str
    type: str
    shape: list[int]
    size: int
    kind: str
    trainable: bool
    why: str
    possible: bool


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
    judged: list[str]  # the outputs that the loss is of
    parameters: list[Parameter]
    obstacles: list[Obstacle]
    guess: Guess
    cost: Cost
    notes: list[Note]

    @property
    def trainable(self) -> bool:
        """Whether at least one parameter can be trained."""
        return any(p.trainable for p in self.parameters)

    @property
    def warnings(self) -> list[str]:
        """The notes as sentences."""
        return [str(note) for note in self.notes]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the schema is in docs/inspect.md."""
        plain = dataclasses.asdict(self)
        return {"trainable": self.trainable, **plain, "warnings": self.warnings}


@guarded
def inspect(
    model: Any,
    *,
    batch: int = 1,
    shapes: Shapes = MappingProxyType({}),
    trainable: Any = "all",
    tie: Any = (),
    untie: Any = (),
) -> Inspection:
    """Say what in `model` can be trained, what cannot and why, and what a step costs at that batch size.

    `model` is a path, bytes, an `onnx.ModelProto` or an `onnx_ir.Model`; it is not changed, and nothing is run.
    What is said is what a Trainer of the same `tie` and `untie` does; the cost is that of training `trainable`.
    `shapes` gives the sizes of inputs that the model leaves open: {"image": [8, 3, 320, 320]}.

    >>> import onnx
    >>> model = onnx.parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     scale (float[N, 2] x) => (float[N, 2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }''')
    >>> [p.name for p in inspect(model).parameters if p.trainable]
    ['w']

    Raises ModelError when there is no model to read.
    """
    model = ModelFile.of(model)
    original, _ = read(model)
    subject = TrainableModel(model, tie=tie, untie=untie)
    judged = subject.float_outputs()[:1]
    tensors = subject.tensors(judged)
    trained = [t.name for t in tensors if t.trained]
    examination = examine(subject.graph, judged, trained)
    blocked = _blocked(examination)
    cost = _cost(subject, judged, trained, trainable, examination, blocked, batch, shapes)
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
        judged=judged,
        parameters=_parameters(subject, tensors, blocked),
        obstacles=_obstacles(subject, tensors, examination, blocked),
        guess=guess(examination.model),
        cost=cost,
        notes=[
            *_judged_note(subject),
            *in_place_of_weights(subject.graph, tensors),
            *subject.notes(tensors),
            *computed_statistics(subject.graph),
            *notes(original, subject.graph),
        ],
    )


def _cost(
    subject, judged, trained, trainable, examination, blocked, batch: int, shapes: Shapes
) -> Cost:
    """What a step of `trainable` takes, without what lies before an obstacle."""
    chosen = set(subject.select(trainable, judged)) if trained else set()
    found = examination
    if chosen != set(trained):
        found = examine(subject.graph, judged, sorted(chosen))
    weights = [v.name for v in found.wrt if v in found.active and v.name not in blocked]
    forward, assumed = with_sizes(subject.graph, batch, shapes)
    step = training_graph(forward, judged, weights) if weights else None
    active = {v.name for v in found.active if v.name}
    return estimate(forward, step, active, set(weights), batch, assumed, judged)


def _judged_note(subject: TrainableModel) -> list[Note]:
    floats = subject.float_outputs()
    return [judged_note(floats)] if len(floats) > 1 else []


def _tensor(value: ir.Value) -> TensorInfo:
    shape = (
        None
        if value.shape is None
        else [d if isinstance(d, int) else str(d.value or "?") for d in value.shape]
    )
    return TensorInfo(
        value.name or "", value.dtype.name.lower() if value.dtype else "unknown", shape
    )


def _blocked(examination: Examination) -> dict[str, Problem]:
    """Weights whose gradient would have to pass an obstacle, each with the first such obstacle."""
    blocked: dict[str, Problem] = {}
    wrt, active = set(examination.wrt), examination.active
    for problem in examination.problems:
        seen, waiting = set(), deque([*problem.node.inputs, *captured(problem.node)])
        while waiting:
            value = waiting.popleft()
            if value is None or value in seen or value not in active:
                continue
            seen.add(value)
            if value in wrt:
                blocked.setdefault(value.name, problem)
            producer = value.producer()
            if producer is not None:
                waiting.extend([*producer.inputs, *captured(producer)])
    return blocked


def _parameters(
    subject: TrainableModel, tensors: list[Tensor], blocked: dict[str, Problem]
) -> list[Parameter]:
    """Every float tensor that could be a weight, in the order in which the graph uses them."""
    values, rows = subject.values(), []
    kinds = {n: ir.DataType(t.data_type).name.lower() for n, t in subject.source.tensors.items()}
    for t in sorted(tensors, key=lambda t: _first_use(subject.graph.graph)(values[t.name])):
        why = t.reason
        if t.name in blocked:
            node = blocked[t.name].node
            why = f"the gradient cannot pass {(node.name or node.op_type)!r} ({node.op_type})"
        kind, trains = kinds.get(t.name, t.type), t.trained and not why
        row = [t.name, _layer(t.name), kind, list(t.shape), t.size, t.kind, trains, why]
        rows.append(Parameter(*row, t.possible and t.name not in blocked))
    return rows


def _first_use(graph: ir.Graph) -> Callable[[ir.Value], int]:
    """A key that sorts values by the first node that reads them."""
    order = {node: number for number, node in enumerate(graph)}
    last = len(order)
    return lambda value: min((order.get(user, last) for user, _ in value.uses()), default=last)


def _layer(name: str) -> str:
    """What comes before the last part of a name: `encoder.0.weight` → `encoder.0`."""
    for mark in (".", "/", "_"):
        if mark in name.strip(mark):
            return name.rpartition(mark)[0]
    return name


def _obstacles(
    subject: TrainableModel,
    tensors: list[Tensor],
    examination: Examination,
    blocked: dict[str, Problem],
) -> list[Obstacle]:
    """Operators without a gradient, and where the paths end of weights that no gradient reaches."""
    owners, values = _owners(examination.model.graph), subject.values()
    rows = []
    for problem in examination.problems:
        count = sum(p is problem for p in blocked.values())
        rows.append(_obstacle(problem, owners, count))
    idle = [values[t.name] for t in tensors if t.kind == UNREACHED and t.size > 1]
    owners = _owners(subject.graph.graph)
    for node, names in dead_ends(idle).items():
        rows.append(_obstacle(problem_of(node), owners, len(names)))
    return rows


def _obstacle(problem: Problem, owners: dict[ir.Graph, ir.Node], count: int) -> Obstacle:
    node = problem.node
    operator = node.op_type if not node.domain else f"{node.domain}.{node.op_type}"
    name = node.name or (node.outputs[0].name if node.outputs else operator) or operator
    path = _path(node, owners)
    return Obstacle(name, operator, problem.because, problem.instead, path, count)


def _owners(graph: ir.Graph) -> dict[ir.Graph, ir.Node]:
    """Each body, with the node that has it."""
    nodes = ir.traversal.RecursiveGraphIterator(graph)
    return {body: node for node in nodes for body in bodies(node)}


def _path(node: ir.Node, owners: dict[ir.Graph, ir.Node]) -> list[str]:
    """The operators from the node to the nearest output, by the shortest path, out of its bodies."""
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
