"""Recurrent nodes with the batch first (layout=1), written with time first.

onnxruntime refuses layout=1, and rules need one form only: Transposes go around the node.
"""

from __future__ import annotations

import onnx_ir as ir

# The axes of X [N, S, I] and of states [N, D, H]; of Y [S, D, N, H] on its way to [N, S, D, H].
_SWAP, _OUT = [1, 0, 2], [2, 0, 1, 3]
_STATES = {"RNN": (0, 5), "GRU": (0, 5), "LSTM": (0, 5, 6)}


def time_first(model: ir.Model) -> None:
    """Rewrite every RNN, GRU and LSTM of a model that has layout=1."""
    for graph in model.graphs():
        for node in list(graph):
            attribute = node.attributes.get("layout")
            if node.op_type in _STATES and not node.domain and attribute and attribute.value:
                _turn(graph, node)


def _turn(graph: ir.Graph, node: ir.Node) -> None:
    del node.attributes["layout"]
    for i in _STATES[node.op_type]:
        value = node.inputs[i] if i < len(node.inputs) else None
        if value is not None:
            turned = _transpose(value, _SWAP, f"{node.outputs[0].name or node.name}/input_{i}")
            graph.insert_before(node, turned)
            node.replace_input_with(i, turned.outputs[0])
    for i, old in enumerate(node.outputs):
        if not old.name or not (old.uses() or old.is_graph_output()):
            continue
        name, kind, shape = old.name, old.type, old.shape
        turned = _transpose(old, _OUT if i == 0 else _SWAP, name)
        new = turned.outputs[0]
        new.type, new.shape = kind, shape
        old.name, old.shape = f"{name}/time_first", None
        for user, index in [u for u in old.uses() if u[0] is not turned]:
            user.replace_input_with(index, new)
        for place, value in enumerate(graph.outputs):
            if value is old:
                graph.outputs[place] = new
        graph.insert_after(node, turned)


def _transpose(value: ir.Value, perm: list[int], name: str) -> ir.Node:
    node = ir.Node("", "Transpose", [value], [ir.AttrInt64s("perm", perm)], num_outputs=1)
    node.outputs[0].name, node.outputs[0].dtype = name, value.dtype
    return node
