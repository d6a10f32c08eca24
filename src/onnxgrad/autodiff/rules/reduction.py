"""Reductions along axes, and running sums."""

from onnxgrad.autodiff.rule import fused, rule


def _keep(op, reduced, axes, keepdims):
    """Bring a reduced tensor to a shape that broadcasts against the data."""
    if keepdims or axes is None or op.ints(axes) == []:
        return reduced
    return op.Unsqueeze(reduced, axes)


def _is_noop(op, axes, noop_with_empty_axes):
    return noop_with_empty_axes and (axes is None or op.ints(axes) == [])


def _reduction(*op_types):
    """Register `formula(op, data, reduced, dreduced)` on tensors that broadcast against the data.

    `reduced` and `dreduced` have size 1 along the reduced axes; the walk sees data's own shape.
    """

    def decorate(formula):
        @rule(*op_types, wrt="data")
        def gradient(op, data, axes, reduced, dreduced, *, keepdims, noop_with_empty_axes=0):
            if _is_noop(op, axes, noop_with_empty_axes):
                axes = op.constant([])
                y, dy = reduced, dreduced
                noop = True
            else:
                y, dy = (_keep(op, t, axes, keepdims) for t in (reduced, dreduced))
                noop = False
            return op.expand_like(formula(op, data, y, dy, axes, noop), data)

        return formula

    return decorate


def _sum(op, x, axes, noop):
    """The sum over the reduced axes, kept as size 1."""
    return op.ReduceSum(x, axes, keepdims=1, noop_with_empty_axes=1 if noop else None)


@_reduction("ReduceSum")
def reduce_sum(op, data, y, dy, axes, noop):
    """dX = dY, repeated."""
    return dy


@_reduction("ReduceMean")
def reduce_mean(op, data, y, dy, axes, noop):
    """dX = dY / n, n the number of elements that went into each mean."""
    return op.Div(dy, op.count(data, y))


@fused("ReduceMean", wrt="data")
def reduce_mean_of_images(op, data, axes, dreduced, *, keepdims):
    """Over all spatial axes it is a global pool: its cotangent is spread in one pass."""
    shape, over = op.dims(data), None if axes is None else op.ints(axes)
    if shape is None or over is None or len(shape) < 4:
        return NotImplemented
    space = shape[2:]
    whole = sorted(a % len(shape) for a in over) == list(range(2, len(shape)))
    if not whole or not all(isinstance(d, int) and d > 0 for d in space):
        return NotImplemented
    dy = _keep(op, dreduced, axes, keepdims)
    return op.AveragePoolGrad(dy, op.shape(data), kernel_shape=list(space))


@_reduction("ReduceSumSquare")
def reduce_sum_square(op, data, y, dy, axes, noop):
    """dX = 2·X·dY."""
    return op.Mul(dy, op.Mul(data, 2.0))


@_reduction("ReduceL1")
def reduce_l1(op, data, y, dy, axes, noop):
    """dX = sign(X)·dY."""
    return op.Mul(dy, op.Sign(data))


@_reduction("ReduceL2")
def reduce_l2(op, data, y, dy, axes, noop):
    """dX = X/Y·dY, and 0 at Y = 0."""
    zero = op.Equal(y, 0.0)
    return op.Mul(data, op.Where(zero, 0.0, op.Div(dy, op.Where(zero, 1.0, y))))


@_reduction("ReduceLogSum")
def reduce_log_sum(op, data, y, dy, axes, noop):
    """Y = log ΣX: dX = dY / ΣX = dY·exp(-Y)."""
    return op.Mul(dy, op.Exp(op.Neg(y)))


@_reduction("ReduceLogSumExp")
def reduce_log_sum_exp(op, data, y, dy, axes, noop):
    """dX = dY·exp(X - Y)."""
    return op.Mul(dy, op.Exp(op.Sub(data, y)))


@_reduction("ReduceMax", "ReduceMin")
def reduce_extremum(op, data, y, dy, axes, noop):
    """The elements that attain the extreme share its cotangent equally, as in PyTorch's amax."""
    hit = op.Cast(op.Equal(data, y), to=op.dtype(data))
    return op.Mul(hit, op.Div(dy, _sum(op, hit, axes, noop)))


@_reduction("ReduceProd")
def reduce_prod(op, data, y, dy, axes, noop):
    """dX = dY · the product of the others, also where some elements are zero.

    With P the product of the nonzero elements: P/X without a zero; P at the one zero; else 0.
    """
    if noop:
        return dy
    zero = op.Equal(data, 0.0)
    safe = op.Where(zero, 1.0, data)
    zeros = _sum(op, op.Cast(zero, to=op.dtype(data)), axes, noop)
    product = op.ReduceProd(safe, axes, keepdims=1)
    without = op.Where(op.Equal(zeros, 0.0), op.Div(product, safe), 0.0)
    at_zero = op.And(zero, op.Equal(zeros, 1.0))
    return op.Mul(dy, op.Where(at_zero, product, without))


rule("CumSum", x=lambda op, axis, dy, *, exclusive, reverse: op.CumSum(
    dy, axis, exclusive=exclusive, reverse=1 - reverse))  # fmt: skip

# Y_i = Π X_j: dX_j = Σ dY_i·Y_i / X_j over the i that X_j is a factor of; X must not be 0.
rule("CumProd", x=lambda op, x, axis, y, dy, *, exclusive, reverse: op.Div(
    op.CumSum(op.Mul(dy, y), axis, exclusive=exclusive, reverse=1 - reverse), x))  # fmt: skip
