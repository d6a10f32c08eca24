"""Linear layers, X·W + B, whose weights are trained: where onnxgrad's own product is faster than onnxruntime's.

The choice is stated here and nowhere else. `bench/products.py` measures it: forward and all gradients together, ours
beside MatMul, Add and the nodes of their gradients, at the shapes of transformer steps.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxgrad.graph.patterns.matching import Sight

# Below these, products do not fill the registers, and onnxruntime's are as fast.
LEAST_DEPTH, LEAST_COLUMNS = 32, 8


def gains(depth: int, columns: int) -> bool:
    """Whether a layer with weights [depth, columns] is faster as our operator."""
    return depth >= LEAST_DEPTH and columns >= LEAST_COLUMNS


def see_linear(sight: Sight, node: ir.Node) -> str | None:
    """A MatMul with trained weights of two axes; with the bias that is added to nothing but it."""
    if node.op_type != "MatMul" or node.domain or not sight.is_float(node.outputs[0]):
        return None
    x, w = node.inputs
    shape, rows = sight.dims(w), sight.dims(x)
    if (
        w not in sight.variables
        or shape is None
        or len(shape) != 2
        or rows is None
        or len(rows) < 2
    ):
        return None
    if not all(isinstance(d, int) for d in shape) or not gains(*shape):
        return None
    end, bias = _with_bias(sight, node.outputs[0], shape[1])
    sight.replace(end, sight.op.LinearTraining(x, w, bias))
    return "LinearTraining"


def _with_bias(sight: Sight, product: ir.Value, columns: int) -> tuple[ir.Value, ir.Value | None]:
    reader = sight.reader(product)
    if reader is None or reader.op_type != "Add" or reader.domain:
        return product, None
    bias = reader.inputs[1] if reader.inputs[0] is product else reader.inputs[0]
    same = sight.dims(bias) == (columns,) and sight.dims(reader.outputs[0]) is not None
    return (reader.outputs[0], bias) if same else (product, None)
