"""Products with weights in small integers, which are frozen: Y = A·Wᵀ (+ bias), dA = dY·W.

Activations that a node rounds on its way (DynamicQuantizeMatMul) are passed straight through.
"""

import functools

import numpy as np
from onnx_ir import DataType

from onnxgrad.autodiff.rule import NoGradient, fused, rule

_rule = functools.partial(rule, domain="com.microsoft")
_fused = functools.partial(fused, domain="com.microsoft")
_BLOCK = 128  # of a weight with one scale per column, written as blocks


def _with_bias(op, dA, bias, dY, need):
    return dA, op.sum_to(dY, bias) if "bias" in need else None


# ---- MatMulNBits: W[n, k] = (q - z)·scale, in blocks along k

_NBITS = {
    "inputs": "A B scales zero_points g_idx bias", "outputs": "Y", "wrt": "A bias",
    "stop": "scales zero_points",
}  # fmt: skip


def _refuse_order(g_idx):
    if g_idx is not None:
        raise NoGradient("orders its blocks by g_idx", "save the model without it")


@_rule("MatMulNBits", **_NBITS)
def matmul_nbits(op, A, B, scales, zero_points, g_idx, bias, dY, *, need, K, N, bits=4, block_size):
    """W is made anew from its integers."""
    _refuse_order(g_idx)
    dA = None
    if "A" in need:
        blocks = -(-K // block_size)
        steps = op.Reshape(_unpacked(op, B, bits), [N, blocks, block_size])
        steps = op.Cast(steps, to=op.dtype(A))
        if zero_points is None:
            zero = op.constant(float(1 << (bits - 1)), op.dtype(A))
        elif zero_points.dtype == DataType.UINT8:
            rows = op.Reshape(_unpacked(op, op.Reshape(zero_points, [N, -1]), bits), [N, -1])
            rows = op.Slice(rows, [0], [blocks], [1])
            zero = op.Unsqueeze(op.Cast(rows, to=op.dtype(A)), [2])
        else:
            zero = op.Reshape(zero_points, [N, blocks, 1])
        W = op.Mul(op.Sub(steps, zero), op.Reshape(scales, [N, blocks, 1]))
        W = op.Slice(op.Reshape(W, [N, blocks * block_size]), [0], [K], [1])
        dA = op.MatMul(dY, W)
    return _with_bias(op, dA, bias, dY, need)


def _unpacked(op, packed, bits):
    """Bytes [..., n] -> integers [..., n·8/bits], the lowest bits of a byte first."""
    whole = op.Unsqueeze(op.Cast(packed, to=DataType.INT32), [-1])
    if bits == 8:
        return whole
    shifts = op.Cast(op.constant([1 << s for s in range(0, 8, bits)]), to=DataType.INT32)
    size = op.Cast(op.constant([1 << bits]), to=DataType.INT32)
    return op.Mod(op.Div(whole, shifts), size)


@_fused("MatMulNBits", **_NBITS)
def matmul_nbits_fused(
    op, A, B, scales, zero_points, g_idx, bias, Y, dY, *, need, K, N, bits=4, block_size
):
    """W is unpacked into the cache; forward, too, so that only W is rounded and nothing is copied."""
    _refuse_order(g_idx)
    settings = {"K": K, "N": N, "bits": bits, "block_size": block_size}
    numbers = zero_points is not None and zero_points.dtype != DataType.UINT8
    zeros = (None, zero_points) if numbers else (zero_points, None)
    product = op.MatMulNBitsTraining(A, B, scales, *zeros, **settings)
    op.instead(Y, product if bias is None else op.Add(product, bias))
    dA = op.MatMulNBitsGrad(dY, B, scales, *zeros, **settings) if "A" in need else None
    return _with_bias(op, dA, bias, dY, need)


# ---- MatMulBnb4: W[n, k] = table[code]·absmax


# By quant_type: FP4, a sign before eight numbers; NF4, quantiles of a normal distribution.
_FP4 = [0.0, 0.00520833333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25]
_NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
]  # fmt: skip


@_rule("MatMulBnb4", inputs="A B absmax", outputs="Y", wrt="A", stop="absmax")
def matmul_bnb4(op, A, B, absmax, dY, *, K, N, block_size, quant_type, transB=1):
    """onnxruntime's own operator multiplies wrongly with transB=0: W is made anew from its codes."""
    if not transB:
        raise NoGradient("multiplies with W itself (transB=0)", "write the weight transposed")
    table = _NF4 if quant_type else [*_FP4, *(-x for x in _FP4)]
    bytes_ = op.Reshape(op.Cast(B, to=DataType.INT32), [-1, 1])
    sixteen = op.Cast(op.constant([16]), to=DataType.INT32)
    codes = op.Concat(op.Div(bytes_, sixteen), op.Mod(bytes_, sixteen), axis=1)
    codes = op.Slice(op.Reshape(codes, [-1]), [0], [N * K], [0])
    blocks = -(-N * K // block_size)
    scales = op.Expand(op.Reshape(absmax, [blocks, 1]), op.constant([blocks, block_size]))
    scales = op.Slice(op.Reshape(scales, [-1]), [0], [N * K], [0])
    values = op.Gather(op.constant(np.array(table), op.dtype(A)), codes, axis=0)
    return op.MatMul(dY, op.Reshape(op.Mul(values, scales), [N, K]))


@_fused("MatMulBnb4", inputs="A B absmax", outputs="Y", wrt="A", stop="absmax")
def matmul_bnb4_fused(
    op, A, B, absmax, Y, dY, *, K, N, block_size, quant_type, transB=1, training_mode=0
):
    """onnxruntime's own operator multiplies wrongly with transB=0: the gradient has a kernel of its own."""
    if not transB:
        raise NoGradient("multiplies with W itself (transB=0)", "write the weight transposed")
    settings = {"K": K, "N": N, "block_size": block_size, "quant_type": quant_type}
    op.instead(Y, op.MatMulBnb4Training(A, B, absmax, **settings))
    return op.MatMulBnb4Grad(dY, B, absmax, **settings)


# ---- DynamicQuantizeMatMul: A is rounded to 8 bits as it runs, W [K, N] = (q - z)·scale of its column

_DYNAMIC = {
    "inputs": "A B b_scale b_zero_point bias", "outputs": "Y", "wrt": "A bias",
    "stop": "b_scale b_zero_point",
}  # fmt: skip


@_rule("DynamicQuantizeMatMul", **_DYNAMIC)
def dynamic_quantize_matmul(op, A, B, b_scale, b_zero_point, bias, dY, *, need):
    """Straight through the rounding of A: dA = dY·Wᵀ."""
    W = op.Cast(B, to=op.dtype(A))
    if b_zero_point is not None:
        W = op.Sub(W, op.Cast(b_zero_point, to=op.dtype(A)))
    dA = op.MatMul(dY, op.Transpose(op.Mul(W, b_scale), perm=[1, 0])) if "A" in need else None
    return _with_bias(op, dA, bias, dY, need)


@_fused("DynamicQuantizeMatMul", **_DYNAMIC)
def dynamic_quantize_matmul_fused(op, A, B, b_scale, b_zero_point, bias, dY, *, need):
    """The same with W kept in bytes: [N, K], in blocks that share their column's scale."""
    arrays = [op.array(v) for v in (B, b_scale, b_zero_point)]
    if arrays[0] is None or arrays[1] is None or (b_zero_point is not None and arrays[2] is None):
        return NotImplemented
    q, scale, zero = arrays
    K, N = q.shape
    shift = 128 if q.dtype == np.int8 else 0
    blocks = -(-K // _BLOCK)
    bytes_ = np.zeros((N, blocks * _BLOCK), np.uint8)
    bytes_[:, :K] = (q.astype(np.int16) + shift).T
    zero = np.zeros(1) if zero is None else zero.astype(np.float64).reshape(-1)
    zeros, scales = (
        np.ascontiguousarray(np.broadcast_to(x.reshape(-1, 1), (N, blocks)))
        for x in (zero + shift, scale)
    )
    kind = op.dtype(A)
    dA = op.MatMulNBitsGrad(
        dY, op.constant(bytes_.reshape(N, blocks, _BLOCK)), op.constant(scales, kind), None,
        op.constant(zeros, kind), K=K, N=N, bits=8, block_size=_BLOCK,
    ) if "A" in need else None  # fmt: skip
    return _with_bias(op, dA, bias, dY, need)
