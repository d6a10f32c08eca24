"""Inner graphs: the bodies of If, Loop and Scan, and the outer values that they read."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator

import onnx
import onnx_ir as ir

from onnxgrad.graph.constants import Constants


def bodies(node: ir.Node) -> list[ir.Graph]:
    """Return the inner graphs of a node."""
    return [a.value for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]


def captured(node: ir.Node) -> list[ir.Value]:
    """Return the outer values that the bodies of a node read."""
    waiting = bodies(node)
    inside: set[ir.Value] = set()
    read: dict[ir.Value, None] = {}
    while waiting:
        graph = waiting.pop()
        inside.update(graph.inputs, graph.initializers.values())
        read.update(dict.fromkeys(graph.outputs))
        for inner in graph:
            inside.update(inner.outputs)
            read.update((v, None) for v in inner.inputs if v is not None)
            waiting.extend(bodies(inner))
    return [v for v in read if v not in inside]


def is_branch(node: ir.Node) -> bool:
    """Say whether a node is an If, whose bodies run at most once."""
    return node.op_type == "If" and not node.domain


def check(node: ir.Node, who: str) -> None:
    """Raise ValueError where a body does not fit its If, Loop or Scan."""
    inputs, outputs = len(node.inputs), len(node.outputs)
    for body in bodies(node) if not node.domain else ():
        if node.op_type == "If":
            expected = (0, outputs)
        elif node.op_type == "Loop":
            expected = (max(inputs, 2), outputs + 1)
        elif node.op_type == "Scan":
            expected = (inputs, outputs)
        else:
            continue
        if None in node.inputs[2 if node.op_type == "Loop" else 0 :]:
            raise ValueError(f"{who} leaves out an input, which it must have")
        found = (len(body.inputs), len(body.outputs))
        if found != expected:
            raise ValueError(
                f"{who} has a body of {found[0]} inputs and {found[1]} outputs, "
                f"expected {expected[0]} and {expected[1]}"
            )


def replace_reads(nodes: Iterable[ir.Node], new: Callable[[ir.Value], ir.Value]) -> None:
    """Let nodes, and the nodes of their bodies, read `new(value)` in the place of `value`."""
    for node in nodes:
        for i, value in enumerate(node.inputs):
            if value is not None and new(value) is not value:
                node.replace_input_with(i, new(value))
        for graph in bodies(node):
            replace_reads(graph, new)


def prepare(model: ir.Model) -> None:
    """Give every value a name of its own, and move the weights of bodies to the main graph.

    What is left of a body reads them from outside, as it reads any outer value: a weight is then
    found, trained and saved in one place, wherever it was written.
    """
    taken = {v.name for v in (*model.graph.inputs, *model.graph.initializers.values())}
    taken.update(v.name for node in model.graph for v in node.outputs)
    for node in _with_bodies(model.graph):
        for graph in bodies(node):
            _rename(graph, taken)
            _copy_constant_outputs(graph, taken)
            for name, value in list(graph.initializers.items()):
                del graph.initializers[name]
                model.graph.register_initializer(value)
            for inner in [n for n in graph if n.op_type == "Constant" and not n.domain]:
                _hoist(model.graph, graph, inner)
        _read_what_stays(node)


def _read_what_stays(node: ir.Node) -> None:
    """Let a Loop's body read from outside what every trip hands on as it is, as tf2onnx does with weights.

    The way back would keep it once for every trip.
    """
    if node.op_type != "Loop" or node.domain:
        return
    body = node.attributes["body"].value
    states = zip(body.inputs[2:], body.outputs[1:], node.inputs[2:], node.outputs, strict=False)
    for state, handed_on, outer, after in list(states):
        while (made := handed_on.producer()) is not None and made.op_type == "Identity":
            handed_on = made.inputs[0]
        if handed_on is state and outer is not None:
            for user, place in (*state.uses(), *after.uses()):
                user.replace_input_with(place, outer)


def forget_shapes(model: ir.Model) -> None:
    """In a model with branches, forget the declared shapes of everything computed.

    Exporters declare the shape that one branch gives, also where the other gives another one (a
    Squeeze that may not happen). Inference then tells what both have in common.
    """
    for graph in model.graphs() if any(map(is_branch, model.graph)) else ():
        for value in (v for node in graph for v in node.outputs):
            if value.type is not None and isinstance(value.type, ir.TensorType):
                value.shape = None


def _with_bodies(graph: ir.Graph) -> Iterator[ir.Node]:
    """Every node of a graph that has bodies, outer ones first."""
    for node in graph:
        if bodies(node):
            yield node
            for body in bodies(node):
                yield from _with_bodies(body)


def _rename(graph: ir.Graph, taken: set[str]) -> None:
    own = (*graph.inputs, *graph.initializers.values())
    for value in dict.fromkeys([*own, *(v for node in graph for v in node.outputs)]):
        fresh, n = value.name, 0
        while fresh and fresh in taken:
            n += 1
            fresh = f"{value.name}_{n}"
        taken.add(fresh)
        if fresh != value.name:
            if value.const_value is not None:
                value.const_value = _own(value.const_value)
            value.name = fresh


def _own(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A tensor whose name may change: onnx-ir's view of a message would rename it in the caller's model."""
    if not isinstance(tensor, ir.serde.TensorProtoTensor):
        return copy.copy(tensor)
    made = onnx.TensorProto()
    made.CopyFrom(tensor.raw)
    return ir.serde.TensorProtoTensor(made)


def _copy_constant_outputs(graph: ir.Graph, taken: set[str]) -> None:
    """Let an Identity make an output that is an initializer, which then can be moved."""
    for i, value in enumerate(graph.outputs):
        if value.is_initializer():
            same = ir.Node("", "Identity", [value], num_outputs=1)
            result, n = same.outputs[0], 0
            while result.name is None or result.name in taken:
                n += 1
                result.name = f"{value.name}/copy_{n}"
            taken.add(result.name)
            result.type, result.shape = value.type, value.shape
            graph.append(same)
            graph.outputs[i] = result


def _hoist(outer: ir.Graph, graph: ir.Graph, node: ir.Node) -> None:
    """Write a Constant node of a body as an initializer of the main graph."""
    old = node.outputs[0]
    tensor = ir.convenience.get_const_tensor(old)
    if tensor is None or old.is_graph_output() or tensor.dtype == ir.DataType.STRING:
        return
    new = ir.Value(name=old.name, const_value=tensor)
    new.dtype, new.shape = tensor.dtype, ir.Shape(tensor.shape)
    ir.convenience.replace_all_uses_with(old, new)
    graph.remove(node, safe=True)
    outer.register_initializer(new)


def take_known_branches(graph: ir.Graph) -> bool:
    """Replace every If whose condition never changes by the branch it takes; say if any was.

    Exporters write such an If where they ask for a rank or a size that turns out to be known.
    """
    constants, changed = Constants(()), False
    for node in list(graph):
        known = constants.array(node.inputs[0]) if is_branch(node) and node.inputs[0] else None
        if known is not None and known.size == 1:
            _take(graph, node, "then_branch" if known.reshape(()) else "else_branch")
            changed = True
            continue
        for body in bodies(node):
            changed |= take_known_branches(body)
    return changed


def _take(graph: ir.Graph, node: ir.Node, branch: str) -> None:
    body = node.attributes[branch].value
    results = list(body.outputs)
    body.outputs.clear()
    nodes = list(body)
    body.remove(nodes)
    graph.insert_before(node, nodes)
    for value in list(body.initializers.values()):
        del body.initializers[value.name]
        graph.register_initializer(value)
    for old, new in zip(node.outputs, results, strict=True):
        if old.is_graph_output():  # keeps its name, which is the model's interface
            same = ir.Node("", "Identity", [new], num_outputs=1)
            graph.insert_before(node, same)
            name, new = old.name, same.outputs[0]
            old.name, new.name = None, name
            new.type, new.shape = old.type, old.shape
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
