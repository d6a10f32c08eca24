"""Quantisation, straight through: rounding counts as the identity, saturation as a stop.

With q = round(x/s) + z and y = (q - z)·s, a cotangent of the integers q is kept as floats: dy·s
comes out of DequantizeLinear, and QuantizeLinear divides it by s where q was not saturated. For
the scale the two give Σ dy·(q - z - x/s), and Σ dy·(q - z) where q was saturated.
"""

from onnxgrad.autodiff.rule import fused, no_gradient, rule
from onnxgrad.graph.integers import RANGES


@rule("DequantizeLinear", wrt="x x_scale")
def dequantize_linear(op, x, x_scale, x_zero_point, dy, *, axis=1, block_size=0, need):
    """dq = dy·s and ds = Σ dy·(q - z), summed over all that one scale belongs to."""
    wide = _along(op, x_scale, x, axis, block_size)
    dx = op.Mul(dy, wide) if "x" in need else None
    if "x_scale" not in need:
        return dx, None
    steps = op.Cast(x, to=op.dtype(dy))
    if x_zero_point is not None:
        zero = op.Cast(x_zero_point, to=op.dtype(dy))
        steps = op.Sub(steps, _along(op, zero, x, axis, block_size))
    return dx, _summed(op, op.Mul(dy, steps), x_scale, x, axis, block_size)


@rule("QuantizeLinear", wrt="x y_scale")
def quantize_linear(op, x, y_scale, y_zero_point, y, dy, *, axis=1, block_size=0, need):
    """dx = dq/s and ds = -Σ dq·x/s², both where x/s + z is within the integers' range."""
    scale = _along(op, y_scale, x, axis, block_size)
    steps = op.Div(x, scale)
    place = op.Round(steps)
    if y_zero_point is not None:
        zero = op.Cast(y_zero_point, to=op.dtype(x))
        place = op.Add(place, _along(op, zero, x, axis, block_size))
    low, high = RANGES.get(y.dtype, (float("-inf"), float("inf")))
    if y.dtype in RANGES:
        inside = op.And(op.GreaterOrEqual(place, float(low)), op.LessOrEqual(place, float(high)))
        dy = op.Where(inside, dy, 0.0)
    dx = op.Div(dy, scale)
    if "y_scale" not in need:
        return dx, None
    return dx, _summed(op, op.Neg(op.Mul(dx, steps)), y_scale, x, axis, block_size)


no_gradient(
    "QuantObserver",
    because="a range that is observed follows the numbers; they do not follow it",
    domain="com.microsoft",
)

_FAKE = dict(domain="com.microsoft", inputs="input scale zero_point", outputs="output mask")


@rule("FakeQuant", wrt="input scale zero_point", **_FAKE)
def fake_quant(
    op, input, scale, zero_point, doutput, *,
    quant_min=0, quant_max=255, axis=1, block_size=0, scale_gradient="exact", batched=0, need,
):  # fmt: skip
    """With r = clip(round(t) + z) - z, t = x/s: dx = dy and ds = Σ dy·(r - t) within the range;
    dx = 0, ds = Σ dy·r and dz = -Σ dy·s where it was left."""
    wide = _along(op, scale, input, axis, block_size)
    zero = 0.0
    if zero_point is not None:
        zero = op.Round(_along(op, zero_point, input, axis, block_size))
    steps = op.Div(input, wide)
    place = op.Add(op.Round(steps), zero)
    low, high = float(quant_min), float(quant_max)
    inside = op.And(op.GreaterOrEqual(place, low), op.LessOrEqual(place, high))
    dx = op.Where(inside, doutput, 0.0)
    ds = dz = None
    if "scale" in need:
        r = op.Sub(op.Clip(place, low, high), zero)
        terms = op.Mul(doutput, op.Where(inside, op.Sub(r, steps), r))
        ds = _summed(op, terms, scale, input, axis, block_size)
        if scale_gradient != "exact":
            ds = op.Mul(
                ds, _pace(op, input, scale, zero_point, axis, block_size, batched, low, high)
            )
        if scale_gradient == "lsq_log":
            ds = op.Div(ds, op.Mul(scale, scale))
    if "zero_point" in need and zero_point is not None:
        terms = op.Where(inside, 0.0, op.Neg(op.Mul(doutput, wide)))
        dz = _summed(op, terms, zero_point, input, axis, block_size)
    return dx, ds, dz


@fused("FakeQuant", wrt="input scale zero_point", **_FAKE)
def fake_quant_fused(op, input, scale, zero_point, doutput, *, attrs, need):
    """One pass over memory for all three."""
    wanted = [name in need for name in ("input", "scale", "zero_point")]
    return op.LearnedFakeQuantGrad(doutput, input, scale, zero_point, **attrs, outputs=wanted)


def _pace(op, x, scale, zero_point, axis, block_size, batched, low, high):
    """LSQ's g = 1/√(n·q): n numbers share a scale, q integers lie on the longer side of the zero point."""
    to = op.dtype(x)
    if block_size:
        shared = op.Min(op.Cast(op.dim(x, axis), to=to), float(block_size))
    else:
        shared = op.Div(op.Cast(op.Size(x), to=to), op.Cast(op.Size(scale), to=to))
    if batched and not block_size:
        shared = op.Div(shared, op.Reshape(op.Cast(op.dim(x, 0), to=to), op.constant([])))
    zero = 0.0 if zero_point is None else op.Round(zero_point)
    longer = op.Max(op.Sub(high, zero), op.Sub(op.Sub(zero, low), 1.0))
    return op.Reciprocal(op.Sqrt(op.Mul(op.Max(shared, 1.0), op.Max(longer, 1.0))))


def _is_one(op, scale, block_size):
    """A vector of one scale is one scale for all, as onnxruntime's writers have it."""
    return not block_size and op.dims(scale) == (1,)


def _along(op, scale, x, axis, block_size):
    """A scale per tensor, per slice along an axis, or per block of it, to broadcast against x."""
    rank = op.rank(x)
    if op.rank(scale) == 0 or _is_one(op, scale, block_size):
        return scale
    axis %= rank
    if not block_size:
        after = list(range(1, rank - axis))
        return op.Unsqueeze(scale, after) if after else scale
    shape = [op.dim(scale, i) for i in range(rank)]
    ones = op.constant([1] * axis + [1, block_size] + [1] * (rank - axis - 1))
    repeated = op.Expand(op.Unsqueeze(scale, [axis + 1]), ones)
    shape[axis] = op.Mul(shape[axis], [block_size])
    whole = op.Reshape(repeated, op.Concat(*shape, axis=0))
    return op.crop_like(whole, x, [axis])


def _summed(op, d, scale, x, axis, block_size):
    """The adjoint of `_along`."""
    rank = op.rank(x)
    if op.rank(scale) == 0 or _is_one(op, scale, block_size):
        return op.reshape_like(op.ReduceSum(d, keepdims=0), scale)
    axis %= rank
    if not block_size:
        others = [i for i in range(rank) if i != axis]
        return op.reshape_like(op.ReduceSum(d, others, keepdims=0) if others else d, scale)
    zero = op.constant([0])
    pads = [zero] * (2 * rank)
    blocks = op.Mul(op.dim(scale, axis), [block_size])
    pads[rank + axis] = op.Sub(blocks, op.dim(x, axis))
    shape = [op.dim(x, i) for i in range(rank)]
    shape[axis : axis + 1] = [op.dim(scale, axis), op.constant([block_size])]
    split = op.Reshape(op.Pad(d, op.Concat(*pads, axis=0)), op.Concat(*shape, axis=0))
    return op.ReduceSum(split, [axis + 1], keepdims=0)
