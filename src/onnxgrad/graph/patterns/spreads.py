"""A gradient that is spread out for a reader that would spread it itself.

    e = Expand(d, shape)  y = Add(other, e)   →   y = Add(other, d)

So it is where a mean is taken beside the tensor itself: squeeze and excitation, normalisations in parts. One node less,
and a tensor less in memory.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxgrad.graph.infer import dims
from onnxgrad.graph.patterns.matching import remove_unread

_SPREADING = {"Add", "Sub", "Mul", "Div"}  # all that has two inputs, and broadcasts both


def drop_spreads(graph: ir.Graph) -> int:
    """Let readers of Expand read what it reads, where another input has all of the shape; return how many went."""
    dropped = 0
    for node in list(graph):
        if node.op_type != "Expand" or node.domain or node.outputs[0].is_graph_output():
            continue
        spread, readers = node.outputs[0], [u.node for u in node.outputs[0].uses()]
        if readers and all(_has_the_shape(reader, spread) for reader in readers):
            spread.replace_all_uses_with(node.inputs[0])
            remove_unread(graph, [node])
            dropped += 1
    return dropped


def _has_the_shape(reader: ir.Node, spread: ir.Value) -> bool:
    if reader.op_type not in _SPREADING or reader.domain:
        return False
    other = reader.inputs[1] if reader.inputs[0] is spread else reader.inputs[0]
    shape = dims(spread)
    known = shape is not None and None not in shape
    return known and other is not spread and dims(other) == shape
