"""SeededDropout in standard operators: the same hash, hence the same masks as the Trainer's.

Unsigned numbers are held in int64, masked to 32 bits where they may grow; ONNX has no unsigned product.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxgrad.contracts import DOMAIN
from onnxgrad.graph import Builder

OPSET = 18  # BitwiseXor and BitwiseAnd came with it
INT64, UINT64 = int(ir.DataType.INT64), int(ir.DataType.UINT64)


def to_standard(model: ir.Model) -> None:
    """Write every SeededDropout of the main graph in standard operators."""
    for node in [n for n in model.graph if _is_dropout(n)]:
        op = Builder(model, model.graph.inputs, prefix=f"{node.name or 'dropout'}/hash")
        x, key = node.inputs
        ratio = float(node.attributes["ratio"].value) if "ratio" in node.attributes else 0.5
        stream = int(node.attributes["stream"].value) if "stream" in node.attributes else 0
        y = op.copy(_dropout(op, x, key, ratio, stream))
        op.finish([y])
        old = node.outputs[0]
        y.dtype, y.shape, name = x.dtype, x.shape, old.name
        ir.convenience.replace_all_uses_with(old, y, replace_graph_outputs=True)
        model.graph.remove(node, safe=True)
        y.name = name
    model.graph.sort()


def _is_dropout(node: ir.Node) -> bool:
    return node.domain == DOMAIN and node.op_type == "SeededDropout"


def _dropout(op: Builder, x: ir.Value, key: ir.Value, ratio: float, stream: int) -> ir.Value:
    """Y = hash32(hash32(i ^ low) + high) < ratio·2³² ? 0 : X / (1 - ratio), for the flat index i."""
    low, high = _seed(op, key, stream)
    shape = op.Shape(x)
    size = op.ReduceProd(shape, keepdims=0)
    index = op.Range(op.constant(0), size, op.constant(1))
    random = _hash32(op, op.BitwiseXor(index, low))
    random = _hash32(op, _low(op, op.Add(random, high)))
    keep = op.Less(op.constant(int(ratio * 2**32) - 1), random)
    scaled = op.Div(x, 1 - ratio)
    return op.Where(op.Reshape(keep, shape), scaled, 0.0)


def _seed(op: Builder, key: ir.Value, stream: int) -> tuple[ir.Value, ir.Value]:
    """Mix seed, step and stream; return the low and the high 32 bits."""
    parts = [op.Gather(key, op.constant(i), axis=0) for i in range(2)]
    seed = _splitmix(op, parts[0])
    seed = _splitmix(op, op.BitwiseXor(seed, parts[1]))
    seed = _splitmix(op, op.BitwiseXor(seed, op.constant(stream)))
    return _low(op, seed), _right(op, seed, 32)


def _splitmix(op: Builder, z: ir.Value) -> ir.Value:
    z = op.Add(z, _signed(op, 0x9E3779B97F4A7C15))
    z = op.Mul(op.BitwiseXor(z, _right(op, z, 30)), _signed(op, 0xBF58476D1CE4E5B9))
    z = op.Mul(op.BitwiseXor(z, _right(op, z, 27)), _signed(op, 0x94D049BB133111EB))
    return op.BitwiseXor(z, _right(op, z, 31))


def _hash32(op: Builder, h: ir.Value) -> ir.Value:
    h = _low(op, op.Mul(op.BitwiseXor(h, _right(op, h, 16)), op.constant(0x7FEB352D)))
    h = _low(op, op.Mul(op.BitwiseXor(h, _right(op, h, 15)), _signed(op, 0x846CA68B)))
    return op.BitwiseXor(h, _right(op, h, 16))


def _right(op: Builder, value: ir.Value, by: int) -> ir.Value:
    """Shift right as an unsigned number."""
    unsigned = op.Cast(value, to=UINT64)
    moved = op.BitShift(unsigned, op.constant(by, ir.DataType.UINT64), direction="RIGHT")
    return op.Cast(moved, to=INT64)


def _low(op: Builder, value: ir.Value) -> ir.Value:
    return op.BitwiseAnd(value, op.constant(0xFFFFFFFF))


def _signed(op: Builder, number: int) -> ir.Value:
    """A 64-bit pattern as int64: products wrap around as unsigned ones do."""
    return op.constant(number - (1 << 64) if number >= 1 << 63 else number)
