"""Products whose input is rounded to 8 bits as they run, seen again as the one operator that they are.

    DynamicQuantizeLinear(A) -> a, sa, za
    Mul(Cast(MatMulInteger(a, B, za, zb)), Mul(sa, sb)) -> Y        is        DynamicQuantizeMatMul(A, B, sb, zb) -> Y

No node of the pattern has a gradient by itself: one alone cannot tell that its integers stand for floats.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxgrad.graph.nodes import remove_unused

MICROSOFT = "com.microsoft"


def fuse(model: ir.Model) -> int:
    """Write every such pattern of the main graph as DynamicQuantizeMatMul; return how many there were."""
    found = 0
    for node in list(model.graph):
        if node.op_type == "MatMulInteger" and not node.domain:
            found += _fuse(model.graph, node)
    if found:
        model.opset_imports.setdefault(MICROSOFT, 1)
    return found


def _fuse(graph: ir.Graph, node: ir.Node) -> bool:
    ends = dynamic_ends(node)
    if ends is None:
        return False
    x, y, scales = ends
    factors = scales.producer()
    if factors is None or factors.op_type != "Mul" or factors.domain:
        return False
    constants = [v for v in factors.inputs if ir.convenience.get_const_tensor(v) is not None]
    matrix = ir.convenience.get_const_tensor(node.inputs[1])
    if len(constants) != 1 or matrix is None or len(matrix.shape) != 2:
        return False
    zero = node.inputs[3] if len(node.inputs) > 3 else None
    scale = _as_vector(graph, constants[0])
    inputs = [x, node.inputs[1], scale, *([] if zero is None else [_as_vector(graph, zero)])]
    new = ir.Node(MICROSOFT, "DynamicQuantizeMatMul", inputs, name=node.name)
    value = new.outputs[0]
    name, value.type, value.shape = y.name, y.type, y.shape
    graph.insert_before(y.producer(), new)
    ir.convenience.replace_all_uses_with(y, value, replace_graph_outputs=True)
    y.name, value.name = f"{name}/parts", name
    remove_unused([y.producer()])
    return True


def _as_vector(graph: ir.Graph, value: ir.Value) -> ir.Value:
    """A scalar as it is; a row of scales without the ones before it."""
    tensor = ir.convenience.get_const_tensor(value)
    if len(tensor.shape) < 2:
        return value
    array = tensor.numpy().reshape(-1)
    new = ir.Value(name=f"{value.name}/row", const_value=ir.tensor(array, name=f"{value.name}/row"))
    new.dtype, new.shape = tensor.dtype, ir.Shape(array.shape)
    if new.name in graph.initializers:
        return graph.initializers[new.name]
    graph.register_initializer(new)
    return new


def dynamic_ends(node: ir.Node) -> tuple[ir.Value, ir.Value, ir.Value] | None:
    """Of MatMulInteger or ConvInteger with its neighbours: the float input, the float output, the scales."""
    before = node.inputs[0].producer()
    if before is None or before.op_type != "DynamicQuantizeLinear":
        return None
    cast = _only_user(node.outputs[0], "Cast")
    product = None if cast is None else _only_user(cast.outputs[0], "Mul")
    if product is None:
        return None
    scales = next((v for v in product.inputs if v is not cast.outputs[0]), None)
    return None if scales is None else (before.inputs[0], product.outputs[0], scales)


def _only_user(value: ir.Value, op_type: str) -> ir.Node | None:
    users = value.uses()
    if len(users) != 1 or value.is_graph_output():
        return None
    node = next(iter(users)).node
    return node if node.op_type == op_type and not node.domain else None
