"""Operators that act differently in training: BatchNormalization and Dropout.

A file exported in training mode is brought into inference form first, so that what is evaluated and
written is the model that people deploy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from onnxgrad.contracts import DOMAIN, OPSET
from onnxgrad.files.tensors import nodes as every_node
from onnxgrad.graph import batch_norm
from onnxgrad.graph.builder import Builder
from onnxgrad.model.instances import channels_of_instances, root
from onnxgrad.model.lora.branch import DROPOUT
from onnxgrad.model.parameters import head_nodes, leads_to_weight
from onnxgrad.notes import Note

KEY = "dropout/key"  # an input of the training graph: seed and batch


# ---- inference form


def to_inference(
    model: onnx.ModelProto,
    numbers: Callable[[onnx.TensorProto], np.ndarray] = numpy_helper.to_array,
) -> list[str]:
    """Switch off the training mode of every BatchNormalization and Dropout; return their names.

    `numbers` reads a tensor, in a data file as well.
    """
    changed = batch_norm.to_inference(model)
    everything = every_node(model.graph, *model.functions)
    false = _constants_of_false(model, everything, numbers)
    for node in everything:
        if node.op_type == "Dropout" and not node.domain and len(node.input) > 2:
            if node.input[2] not in false:
                changed.append(node.name or node.output[0])
            del node.input[2:]
    return changed


def _constants_of_false(model: onnx.ModelProto, nodes: list[onnx.NodeProto], numbers) -> set[str]:
    """The names of the tensors that Dropouts read as a mode and that hold a single False; "" is one, too."""
    tensors = {t.name: t for t in model.graph.initializer}
    for node in nodes:
        if node.op_type == "Constant":
            tensors.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
    modes = {n.input[2] for n in nodes if n.op_type == "Dropout" and len(n.input) > 2}
    return {"", *(n for n in modes if n in tensors and not numbers(tensors[n]).any())}


def _set_training(node: ir.Node, training: bool) -> None:
    node.attributes["training_mode"] = ir.AttrInt64("training_mode", int(training))
    node.resize_outputs(3 if training else 1)


# ---- batch normalisation


def train_batch_norm(
    model: ir.Model, trainable: set[str], weights: set[str], notes: list[Note]
) -> dict[str, str]:
    """Let batch normalisations use the statistics of the batch; return name -> name of its update.

    Only those whose scale or bias is trained: a frozen layer keeps its statistics too. One that has neither
    among the `weights` of the model goes with what comes before it. The new running statistics are
    outputs of the node: momentum·old + (1 - momentum)·batch. A layer that is called several times moves them
    with every call.
    """
    nodes = _batch_norms(model)
    updates: dict[str, str] = {}
    latest: dict[ir.Value, ir.Value] = {}
    for node in nodes:
        scale, bias, mean, var = node.inputs[1:5]
        own = {root(scale).name, root(bias).name}
        if not own & trainable and (own & weights or not _follows(node.inputs[0], trainable)):
            continue
        name = node.name or node.outputs[0].name
        if _takes_instances(node):
            updates |= _train_instances(model, node)
            continue
        if _has_computed_statistics(node):
            notes += [_frozen(node)] if not _normalises_by_itself(node) else []
            continue
        if not (_is_one_layer(mean, 3, nodes) and _is_one_layer(var, 4, nodes)):
            text = f"batch normalisation {name!r} stays frozen: another use shares its statistics"
            notes.append(Note("frozen", name, text, "--untie gives each its own"))
            continue
        _set_training(node, True)
        for index, value, output in zip((3, 4), (mean, var), node.outputs[1:], strict=True):
            before = latest.get(value)
            output.name = f"{value.name if before is None else before.name}/updated"
            output.dtype, output.shape = value.dtype, value.shape
            updates[value.name] = output.name
            if before is not None:
                node.replace_input_with(index, before)
            latest[value] = output
    return updates


def _batch_norms(model: ir.Model) -> list[ir.Node]:
    """Those in inference form: what stayed in training form standardises weights (graph/batch_norm.py)."""
    nodes = [n for n in model.graph if n.op_type == "BatchNormalization" and not n.domain]
    return [n for n in nodes if not n.attributes.get_int("training_mode", 0)]


def _takes_instances(node: ir.Node) -> bool:
    """An InstanceNorm whose running statistics nothing else has: in training it uses those of every picture."""
    roots = [root(v) for v in node.inputs[3:5]]
    alone = all(v.is_initializer() and len(v.uses()) == 1 for v in roots)
    return alone and channels_of_instances(node) > 0


def _train_instances(model: ir.Model, node: ir.Node) -> dict[str, str]:
    """Let it do so; the new running statistics are the mean of what every picture makes of them."""
    _set_training(node, True)
    op = Builder(model, node.outputs, prefix="instances")
    rows = np.array([-1, channels_of_instances(node)], np.int64)
    updates, made = {}, []
    for value, output in zip(node.inputs[3:5], node.outputs[1:], strict=True):
        output.name = f"{value.name}/updated"
        output.dtype, output.shape = value.dtype, value.shape
        new = op.ReduceMean(op.Reshape(output, rows), [0], keepdims=0)
        new.name = f"{root(value).name}/updated"
        updates[root(value).name] = new.name
        made.append(new)
    op.finish(made)
    return updates


def _is_one_layer(statistic: ir.Value, index: int, nodes: list[ir.Node]) -> bool:
    """Whether all that read it are calls of one batch normalisation, with one scale and one bias."""
    users = [node for node, place in statistic.uses() if place == index and node in nodes]
    return len(users) == len(statistic.uses()) and len({n.inputs[1:3] for n in users}) == 1


def computed_statistics(model: ir.Model) -> list[Note]:
    """Say which batch normalisations cannot use the statistics of the batch, whatever is trained."""
    nodes = _batch_norms(model)
    computed = [n for n in nodes if _has_computed_statistics(n)]
    frozen = [n for n in computed if not (_normalises_by_itself(n) or _takes_instances(n))]
    return [_frozen(n) for n in frozen]


def _normalises_by_itself(node: ir.Node) -> bool:
    """Its statistics are those of its own input: Keras writes a layer normalisation this way."""
    return any(_follows(v, {i.name for i in node.graph.inputs}) for v in node.inputs[3:5])


def _has_computed_statistics(node: ir.Node) -> bool:
    return any(ir.convenience.get_const_tensor(v) is None for v in node.inputs[3:5])


def _frozen(node: ir.Node) -> Note:
    name = node.name or node.outputs[0].name
    text = f"batch normalisation {name!r} stays frozen: its statistics are computed"
    return Note("frozen", name, text)


def _follows(value: ir.Value, names: set[str]) -> bool:
    """Say whether a value is computed from one of the tensors or inputs `names`."""
    waiting, seen = [value], {value}
    while waiting:
        current = waiting.pop()
        if current.name in names:
            return True
        node = current.producer()
        found = [v for v in (() if node is None else node.inputs) if v is not None]
        waiting += [v for v in found if v not in seen]
        seen.update(found)
    return False


# ---- dropout


def train_dropout(
    model: ir.Model, rate: float | None, weights: list[ir.Value], notes: list[Note]
) -> bool:
    """Make the model's Dropout nodes act, at `rate` or their own; say whether any acts.

    A model without one gets one before its last layer where `rate` is given. The masks follow from
    the input `dropout/key` alone, so that a resumed run draws what the uninterrupted one would.
    """
    if rate is not None and not 0 <= rate < 1:
        raise ValueError(f"dropout is {rate!r}, expected 0 <= rate < 1")
    nodes = [n for n in model.graph if n.op_type == "Dropout" and not n.domain]
    key = ir.Value(name=KEY, shape=ir.Shape([2]), type=ir.TensorType(ir.DataType.INT64))
    own = [n for n in nodes if (n.name or "").startswith(DROPOUT)]  # an adapter's have their rate
    places = [
        (n.outputs[0], n.inputs[0], _rate(n) if rate is None or n in own else rate) for n in nodes
    ]
    if len(nodes) == len(own) and rate:
        places += _before_head(model, weights, rate)
        names = ", ".join(repr(x.name) for _, x, _ in places) or "nothing: no last layer was found"
        text = f"the model has no Dropout: one is put behind {names}"
        notes.append(Note("dropout", "", text))
    stream = 0
    for output, x, chosen in places:
        if chosen:
            _drop(model, output, x, key, chosen, stream)
            stream += 1
    if stream:
        model.graph.inputs.append(key)
        model.opset_imports.setdefault(DOMAIN, OPSET)
    return stream > 0


def _rate(node: ir.Node) -> float:
    """Return a Dropout's own rate; 0 where it is computed, or where the mask is used elsewhere."""
    if len(node.outputs) > 1 and (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
        return 0.0
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return 0.5
    tensor = ir.convenience.get_const_tensor(node.inputs[1])
    return 0.0 if tensor is None else float(tensor.numpy().reshape(-1)[0])


def _before_head(model: ir.Model, weights: list[ir.Value], rate: float) -> list[tuple]:
    """Return the values that the last layers read, to be replaced for those layers only."""
    known = set(weights)
    return [
        (node, x, rate)
        for node in head_nodes(model, known)
        for x in node.inputs[:1]
        if x is not None and not leads_to_weight(x, known)
    ]


def _drop(model, place, x: ir.Value, key: ir.Value, rate: float, stream: int) -> None:
    """Put a dropout of `x` in `place`: of the output of a Dropout, or before a node that reads it."""
    y = ir.Value(name=f"dropout/{stream}", shape=x.shape, type=x.type)
    attributes = [ir.AttrFloat32("ratio", rate), ir.AttrInt64("stream", stream)]
    node = ir.Node(
        DOMAIN, "SeededDropout", [x, key], attributes, outputs=[y], name=f"dropout/{stream}"
    )
    at = place if isinstance(place, ir.Node) else place.producer()
    model.graph.insert_before(at, node)
    if isinstance(place, ir.Node):
        for index, value in enumerate(place.inputs):
            if value is x:
                place.replace_input_with(index, y)
        return
    if place.is_graph_output():  # an output keeps its name: losses and users know it by that
        place.name, y.name = f"{place.name}/kept", place.name
    ir.convenience.replace_all_uses_with(place, y, replace_graph_outputs=True)
    model.graph.remove(at, safe=True)
