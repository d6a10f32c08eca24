"""From a training graph to a step: gradients become new weights, the optimizer's state goes in and out."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import onnx
import onnx_ir as ir

from onnxgrad.graph import Builder, load
from onnxgrad.stepfile import dropout
from onnxgrad.stepfile.updates import DOUBLE, Scalars, clipped, update
from onnxgrad.train.optimizers import Optimizer
from onnxgrad.train.step.build import to_proto, values_of
from onnxgrad.train.step.setup import TrainingPlan

LR, STEP = "lr", "step"


@dataclass(frozen=True)
class Description:
    """The inputs and outputs of a step file by what they are; `new.<name>` replaces `<name>`."""

    batch: list[str]
    targets: list[str]
    parameters: list[str]
    statistics: list[str]
    state: list[str]
    settings: list[str]  # lr, step, and where there is dropout its key: seed and step
    loss: str
    lr: float
    version: int = 1

    def as_dict(self) -> dict:
        return asdict(self)


@dataclass(frozen=True)
class Clipping:
    """Limits for the norm of all gradients, and for each number in them."""

    norm: float | None = None
    value: float | None = None

    def __post_init__(self) -> None:
        for name, limit in (("clip_norm", self.norm), ("clip_value", self.value)):
            if limit is not None and not limit > 0:
                raise ValueError(f"{name} is {limit!r}, expected a number > 0")


def new_name(name: str) -> str:
    """Return the name of the output that replaces the input `name` in the next step.

    >>> new_name("fc.weight")
    'new.fc.weight'
    """
    return f"new.{name}"


def step_model(
    setup: TrainingPlan, optimizer: Optimizer, clipping: Clipping, standard: bool
) -> tuple[onnx.ModelProto, Description]:
    """Return the step as a model, and what its inputs and outputs are."""
    graph = setup.graph
    model = load(graph.model.whole())
    values = values_of(model)
    gradients = [values[g] for g in graph.gradients.values()]
    weights = [values[n] for n in graph.gradients]
    settings = _settings(model)
    state = {w.name: _state(model, w, optimizer) for w in weights}
    op = Builder(model, model.graph.inputs, prefix="update")
    now = Scalars(*(op.Cast(v, to=int(DOUBLE)) for v in settings))
    results: dict[str, ir.Value] = {}
    for weight, gradient in zip(
        weights, clipped(op, gradients, clipping.norm, clipping.value), strict=True
    ):
        kept = state[weight.name]
        results[weight.name], changed = update(op, optimizer, now, weight, gradient, kept)
        results.update((kept[kind].name, value) for kind, value in changed.items())
    results.update((name, values[new]) for name, new in graph.statistics.items())
    _finish(op, model, graph.loss, results)
    if standard:
        dropout.to_standard(model)
    return to_proto(model), _description(setup, model, state, optimizer)


def _settings(model: ir.Model) -> list[ir.Value]:
    lr = ir.Value(name=LR, shape=ir.Shape(()), type=ir.TensorType(ir.DataType.FLOAT))
    step = ir.Value(name=STEP, shape=ir.Shape(()), type=ir.TensorType(ir.DataType.INT64))
    model.graph.inputs.extend([lr, step])
    return [lr, step]


def _state(model: ir.Model, weight: ir.Value, optimizer: Optimizer) -> dict[str, ir.Value]:
    """Add the optimizer's state of one weight to the inputs: `<weight>.<kind>`."""
    made = {
        kind: ir.Value(name=f"{weight.name}.{kind}", shape=weight.shape, type=weight.type)
        for kind in optimizer.kinds()
    }
    model.graph.inputs.extend(made.values())
    return made


def _finish(op: Builder, model: ir.Model, loss: str, results: dict[str, ir.Value]) -> None:
    """Make the results the outputs behind the loss, each a value of its own."""
    made = {name: op.copy(value) for name, value in results.items()}
    op.finish(made.values())
    inputs = {v.name: v for v in model.graph.inputs}
    for name, value in made.items():
        value.name = new_name(name)
        value.dtype, value.shape = inputs[name].dtype, inputs[name].shape
    outputs = model.graph.outputs
    for value in [v for v in outputs if v.name != loss]:
        outputs.remove(value)
    outputs.extend(made.values())


def _description(setup: TrainingPlan, model: ir.Model, state, optimizer: Optimizer) -> Description:
    kinds = [v.name for of in state.values() for v in of.values()]
    keys = list(setup.settings)
    return Description(
        batch=list(setup.inputs),
        targets=[t.name for t in setup.objective.expected()],
        parameters=list(setup.graph.gradients),
        statistics=list(setup.graph.statistics),
        state=kinds,
        settings=[LR, STEP, *keys],
        loss=setup.graph.loss,
        lr=optimizer.lr,
    )


def initial_model(
    tensors: dict[str, np.ndarray], step: onnx.ModelProto, state: list[str]
) -> onnx.ModelProto:
    """Return a model without inputs whose outputs are what the first step takes.

    The tensors lie in it as they are; the state is zeros that take no space in the file.
    """
    helper = onnx.helper
    infos = {i.name: i for i in step.graph.input}
    nodes = [helper.make_node("Identity", [f"initial.{n}"], [n]) for n in tensors]
    constants = [onnx.numpy_helper.from_array(a, f"initial.{n}") for n, a in tensors.items()]
    for name in state:
        kind = infos[name].type.tensor_type
        shape = np.array([d.dim_value for d in kind.shape.dim], np.int64)
        constants.append(onnx.numpy_helper.from_array(shape, f"shape.{name}"))
        zero = helper.make_tensor("zero", kind.elem_type, [1], [0.0])
        nodes.append(helper.make_node("ConstantOfShape", [f"shape.{name}"], [name], value=zero))
    outputs = [infos[n] for n in (*tensors, *state)]
    graph = helper.make_graph(nodes, "initial", [], outputs, constants)
    imports = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, producer_name="onnxgrad")
