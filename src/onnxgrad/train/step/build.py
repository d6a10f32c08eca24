"""From a model and a loss to two graphs: one that trains, one that evaluates.

In both, the weights and running statistics are inputs, so that sessions read the trainer's buffers.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxgrad.autodiff import grad
from onnxgrad.contracts import DOMAIN, OPSET
from onnxgrad.graph import Builder, make_input
from onnxgrad.graph.nodes import remove_unused, values_of
from onnxgrad.graph.patterns import see_patterns
from onnxgrad.graph.patterns.packed import see_packed
from onnxgrad.graph.patterns.scores import see_scores
from onnxgrad.graph.ranges import holds_probabilities
from onnxgrad.model import roles
from onnxgrad.model.ending import ending
from onnxgrad.notes import Note
from onnxgrad.ort import BOUND, LARGE, HeldModel
from onnxgrad.train.losses import (
    BinaryCrossEntropyOfProbabilities,
    Loss,
    NegativeLogLikelihood,
    Target,
    inside_one,
)

OWN = Loss()  # the output is the loss itself


@dataclass
class Objective:
    """What is minimised: a loss per output, each with its weight, and the targets they need."""

    losses: dict[str, Loss]
    weights: dict[str, float]
    targets: dict[str, Target] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    extras: dict[str, Target] = field(default_factory=dict)  # by name: weights of rows

    def expected(self) -> list[Target]:
        """Return everything that a batch gives beside the model's inputs."""
        return [*self.targets.values(), *self.extras.values()]

    def weight(self, arrays: Mapping[str, np.ndarray]) -> float:
        """How much a batch counts beside others: its rows, the sum of their weights, or the labels that count."""
        weights = next(iter(self.extras), None)
        if weights is not None:
            return float(arrays[weights].sum())
        targets = list(self.targets.values())
        if len(targets) == 1 and targets[0].ignore is not None:
            return float(np.count_nonzero(arrays[targets[0].name] != targets[0].ignore))
        return next((len(a) for a in arrays.values() if a.ndim), 1)


@dataclass
class TrainingGraph:
    """The training model, and the names by which a step finds its parts."""

    model: HeldModel
    loss: str
    parts: dict[str, str]  # output -> name of its own loss, where there are several
    gradients: dict[str, str]  # parameter -> name of its gradient
    statistics: dict[str, str]  # running statistic -> name of its new value


def target_names(outputs: Iterable[str]) -> dict[str, str]:
    """Return the name of each output's target: "target" for one, else `<output>_target`."""
    outputs = list(outputs)
    return {o: "target" if len(outputs) == 1 else f"{o}_target" for o in outputs}


def attach(model: ir.Model, objective: Objective, variables: Iterable[ir.Value]) -> tuple:
    """Write the losses into `model`; return the names of the total and of the parts."""
    variables = list(variables)
    op = Builder(model, variables, prefix="loss")
    graph, named = model.graph, {v.name: v for v in model.graph.outputs}
    names = target_names(objective.losses)
    parts: dict[str, ir.Value] = {}
    terms, objective.notes = [], []
    for name, loss in objective.losses.items():
        if loss is OWN:
            terms.append(named[name])
            continue
        target = loss.target(op, named[name], op.fresh(names[name]))
        objective.targets[name] = target
        extras = loss.extras(op, named[name], target.name)
        objective.extras.update((extra.name, extra) for extra in extras)
        values = [_as_input(wanted) for wanted in (target, *extras)]
        graph.inputs.extend(values)
        judged = _before_activation(op, named[name], loss, objective, variables)
        if target.scores == "logits" and judged is not named[name]:
            objective.targets[name] = replace(target, scores="probabilities")
        part = _scalar(op, loss.write(op, judged, *values), name)
        parts[name] = part
        weight = objective.weights.get(name, 1.0)
        terms.append(part if weight == 1 else op.Mul(part, float(weight)))
    # A node of its own: the total is an output even when it is one of the parts.
    total = op.copy(terms[0] if len(terms) == 1 else op.Sum(*terms))
    several = len(parts) > 1
    kept = [op.copy(p) for p in parts.values()] if several else []
    op.finish([total, *kept])
    total.name = op.fresh("loss")
    for output, value in zip(parts, kept, strict=False):
        value.name = op.fresh(f"{output}_loss")
    graph.outputs.extend([total, *kept])
    return total.name, {o: v.name for o, v in zip(parts, kept, strict=False)}


def _as_input(target: Target) -> ir.Value:
    return ir.Value(
        name=target.name,
        shape=None if target.dims is None else ir.Shape(target.dims),
        type=ir.TensorType(ir.DataType.from_numpy(target.dtype)),
    )


def _scalar(op: Builder, value: ir.Value, output: str) -> ir.Value:
    dims = op.dims(value)
    if dims == ():
        return value
    if dims is not None and all(d == 1 for d in dims):
        return op.Reshape(value, op.constant([]))
    if dims is None:
        value.shape = ir.Shape(())
        return value
    raise ValueError(f"the loss of output {output!r} has shape {list(dims)}, expected a scalar")


def _before_activation(
    op: Builder, output: ir.Value, loss: Loss, objective: Objective, variables: Container[ir.Value]
) -> ir.Value:
    """Return the logits where the model ends in the activation that the loss contains already.

    The gradient through both would lose all digits where the model is sure, and two sigmoids are not
    what anybody means. Where the probabilities were clipped or averaged there are no logits: the loss
    then gets those that would give these probabilities.
    """
    end = ending(output, loss.activation())
    kind = (
        "Sigmoid" if "Sigmoid" in loss.activation() else "Softmax" if _of_logarithms(loss) else ""
    )
    if end is None and kind and holds_probabilities(output, variables):
        said = (
            f"output {output.name!r} lies between 0 and 1 whatever the weights are: it holds probabilities, and "
            f"{type(loss).__name__} uses their logarithms"
        )
        objective.notes.append(Note("probabilities", output.name, said))
        return _logits(op, output, kind)
    if end is None:
        return _before_dropout(output, loss, objective)
    kind, name = end.node.op_type, type(loss).__name__
    logits = end.node.inputs[0]
    if end.mixed:
        said = (
            f"output {output.name!r} holds probabilities, made by {kind} and {end.moves[-1].op_type}: "
            f"{name} uses their logarithms"
        )
        objective.notes.append(Note("probabilities", output.name, said))
        return _logits(op, output, kind)
    if kind != "Sigmoid":
        rank = op.rank(end.node.outputs[0])
        axis = end.node.attributes["axis"].value if "axis" in end.node.attributes else -1
        only_named = all(node.op_type == "Identity" for node in end.moves)
        if only_named and axis % rank != loss.class_axis(rank):
            return output
        if not only_named:  # a softmax of log-probabilities is itself, wherever they were moved
            logits = op.LogSoftmax(logits, axis=axis)
    said = f"output {output.name!r} ends in {kind}: {name} uses the logits {end.node.inputs[0].name!r} before it"
    said += ", without the Dropout behind it" * end.dropped
    objective.notes.append(Note("logits", output.name, said))
    return end.replay(op, logits)


def _before_dropout(output: ir.Value, loss: Loss, objective: Objective) -> ir.Value:
    """Return probabilities, or their logarithms, as they were: zeros and doubles of them have no loss."""
    inner = getattr(loss, "loss", loss)
    known = isinstance(inner, (NegativeLogLikelihood, BinaryCrossEntropyOfProbabilities))
    end = ending(output) if known else None
    if end is None or not end.dropped or end.moves:
        return output
    text = f"output {output.name!r} is judged without the Dropout behind {end.node.op_type}"
    objective.notes.append(Note("dropout", output.name, text))
    return end.node.outputs[0]


def _of_logarithms(loss: Loss) -> bool:
    inner = getattr(loss, "loss", loss)
    return isinstance(inner, NegativeLogLikelihood) and not inner.probabilities


def _logits(op: Builder, output: ir.Value, kind: str) -> ir.Value:
    """Return what the activation `kind` would make these probabilities of."""
    if kind == "LogSoftmax":
        return output
    p = inside_one(op, output)
    return op.Log(p) if kind == "Softmax" else op.Sub(op.Log(p), op.Log(op.Sub(1.0, p)))


def training_graph(
    model: ir.Model,
    objective: Objective,
    trainable: list[str],
    statistics: Mapping[str, str | None],
    keep: Iterable[str] = (),
    switches: Iterable[str] = (),
    ops: str = "fused",
    patterns: bool = True,
) -> TrainingGraph:
    """Return the model with its loss and the gradient of every name in `trainable`.

    `model` is changed. `statistics` maps running statistics to their new values, made by nodes of
    the model, or to None where they stay; `switches` are further tensors that become inputs; `keep`
    names the model's outputs that a step also returns.
    """
    values = values_of(model)
    loss, parts = attach(model, objective, [values[n] for n in (*trainable, *statistics)])
    keep = {*keep, loss, *parts.values()}
    outputs = model.graph.outputs
    for value in [v for v in outputs if v.name not in keep]:
        outputs.remove(value)
    moving = {name: new for name, new in statistics.items() if new is not None}
    for new in moving.values():
        outputs.append(values[new])
    result = grad(model, of=loss, wrt=trainable, parameters="inputs", ops=ops, patterns=patterns)
    names = [v.name for v in result.graph.outputs][-len(trainable) :]
    known = values_of(result)
    for name in (*statistics, *switches):
        make_input(result.graph, known[name])
    gradients = dict(zip(trainable, names, strict=True))
    if ops == "fused":  # products before the first weight that is trained, which no rule has seen
        see_patterns(result, (), (see_packed,))
    return TrainingGraph(to_session(result), loss, parts, gradients, moving)


def evaluation_graph(
    model: ir.Model, objective: Objective | None, inputs: Iterable[str], *, outputs: bool = True
) -> tuple[HeldModel, str | None, dict[str, str]]:
    """Return the model in inference form with `inputs` as inputs, and with the loss if asked for.

    Without `outputs` it has the losses alone; scores of a large vocabulary then never exist as a whole.
    """
    values = values_of(model)
    wanted = [values[n] for n in inputs]
    loss, parts = None, {}
    if objective is not None:
        loss, parts = attach(model, objective, wanted)
    if not outputs:
        kept = {loss, *parts.values()}
        for value in [v for v in model.graph.outputs if v.name not in kept]:
            model.graph.outputs.remove(value)
        see_patterns(model, wanted, (see_scores,))
        remove_unused(list(model.graph))
    for value in wanted:
        make_input(model.graph, value)
    return to_session(model), loss, parts


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Return a model as a proto with its weights inside.

    It imports onnxgrad's domain even where it has none of its operators: a session that knows the
    library fuses nodes into that domain, and then looks for its version.
    """
    model.opset_imports.setdefault(DOMAIN, OPSET)
    _free_names(model.graph)
    ir.external_data.load_to_model(model)
    return ir.to_proto(model)


HELD = 1 << 16  # bytes: smaller tensors are shapes and settings, which the runtime wants to see
_INTEGERS = [ir.DataType[f"{sign}INT{bits}"] for sign in ("", "U") for bits in (8, 16, 32, 64)]
_LENT = {ir.DataType.FLOAT16, *roles.TYPES, *_INTEGERS}


def is_lent(value: ir.Value) -> bool:
    """Whether sessions take a tensor from an array that is not theirs."""
    tensor = value.const_value
    return tensor is not None and tensor.dtype in _LENT and tensor.nbytes >= HELD


def share(model: ir.Model, trained: Container[str]) -> None:
    """Give what is not trained one array for all sessions; each would get its own copy out of the message otherwise."""
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if name not in trained and is_lent(value) and not isinstance(tensor, ir.ExternalTensor):
            array = np.ascontiguousarray(tensor.numpy())
            value.const_value = ir.Tensor(array, dtype=tensor.dtype, name=name)


def to_session(model: ir.Model) -> HeldModel:
    """As `to_proto`, with the large tensors left where they are; `model` is changed.

    Of a model with many, they become inputs, which no session copies: those of a data file stay in it, mapped.
    """
    _drop_idle_tensors(model.graph)
    found = {name: value for name, value in model.graph.initializers.items() if is_lent(value)}
    in_place = sum(value.const_value.nbytes for value in found.values()) >= LARGE
    if in_place:
        see_patterns(model, (), (see_packed,))
    held, bound = {}, {}
    for name, value in list(model.graph.initializers.items()):
        tensor = value.const_value
        if name not in found:
            if isinstance(tensor, ir.ExternalTensor):
                value.const_value = ir.tensor(np.array(tensor.numpy()), tensor.dtype, name=name)
            continue
        array = np.ascontiguousarray(tensor.numpy())
        if in_place and tensor.nbytes >= BOUND:
            bound[name] = array
            value.dtype, value.shape = tensor.dtype, tensor.shape
            make_input(model.graph, value)
            continue
        held[name] = array
        value.const_value = ir.ExternalTensor(
            "held", 0, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name
        )
    model.opset_imports.setdefault(DOMAIN, OPSET)
    _free_names(model.graph)
    return HeldModel(ir.to_proto(model), held, bound)


def _drop_idle_tensors(graph: ir.Graph) -> None:
    """Remove tensors that no node uses: onnxruntime drops them first, then misses those it was lent."""
    for name, value in list(graph.initializers.items()):
        if not (value.uses() or value.is_graph_input() or value.is_graph_output()):
            del graph.initializers[name]


# What onnxruntime's optimiser calls the shapes it adds, and would call them again.
_TAKEN = re.compile(r"(.*_new_shape|gemm_(input|output)_shape)(_token_\d+)?")


def _free_names(graph: ir.Graph) -> None:
    """Rename constants of a file that the optimiser has seen before: it trips over names of its own."""
    for name, value in list(graph.initializers.items()):
        if _TAKEN.fullmatch(name) and not value.is_graph_input() and not value.is_graph_output():
            # a name is the tensor's as well, and that is one of the file that will be written
            value.const_value = ir.tensor(value.const_value.numpy(), name=name)
            value.name = f"given/{name}"


def describe_inputs(model: ir.Model) -> dict[str, Any]:
    """Return the inputs that a batch must provide: those that are not initializers."""
    graph = model.graph
    return {v.name: v for v in graph.inputs if v.name not in graph.initializers}
