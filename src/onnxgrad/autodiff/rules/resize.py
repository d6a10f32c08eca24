"""Resize, and sampling at computed places.

Resize is linear and works on one axis at a time: Y = X·M along each resized axis, M [in, out].
So dX = dY·Mᵀ along each. M is the Resize of the unit vectors, by the node's own attributes: every
mode, rounding and edge is then the forward pass's own.
"""

from onnx_ir import DataType

from onnxgrad.autodiff.rule import NoGradient, fused, rule

# Where an output reads from depends on the scale alone, so M of a longer axis begins with M.
_BY_SCALE = ("half_pixel", "asymmetric", "pytorch_half_pixel")


@rule("Resize", wrt="X", stop="roi scales")
def resize(op, X, roi, scales, sizes, Y, dY, *, attrs):
    """Multiply by the transposed matrix of every axis that changes."""
    rank = op.rank(X)
    given = [a % rank for a in attrs.get("axes") or range(rank)]
    for i, axis in enumerate(given):
        if _stays(op, X, scales, sizes, Y, i, axis, attrs):
            continue
        last = rank - 1
        order = [a for a in range(rank) if a != axis] + [axis]
        back = [order.index(a) for a in range(rank)]
        matrix = _matrix(op, X, roi, scales, sizes, Y, i, axis, len(given), attrs)
        rows = dY if axis == last else op.Transpose(dY, perm=order)
        rows = op.MatMul(rows, op.Transpose(matrix, perm=[1, 0]))
        dY = rows if axis == last else op.Transpose(rows, perm=back)
    return dY


@fused("Resize", wrt="X", stop="roi scales")
def resize_fused(op, X, roi, scales, sizes, dY, *, attrs):
    """The region is read in one mode only."""
    crop = attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    if crop and roi.dtype != X.dtype:
        return NotImplemented
    return op.ResizeGrad(dY, X, roi if crop else None, scales, sizes, **attrs)


def _stays(op, X, scales, sizes, Y, i, axis, attrs):
    """Say whether an axis surely keeps its size, and its elements their places."""
    if attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return False
    known = op.array(scales) if scales is not None and sizes is None else None
    if known is not None and known.size:
        return float(known[i]) == 1.0
    before, after = op.dims(X)[axis], (op.dims(Y) or [None] * op.rank(X))[axis]
    if after is None and sizes is not None:
        after = op.ints(op.Gather(sizes, [i], axis=0))
        after = after[0] if after else None
    if attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return False
    if before is not None and before == after:
        return True
    # Only "nearest" runs on the batch axis of images in onnxruntime.
    return axis == 0 and op.rank(X) > 3 and attrs.get("mode", "nearest") != "nearest"


def _matrix(op, X, roi, scales, sizes, Y, i, axis, count, attrs):
    """[in, out]: the unit vectors of one axis, resized along it."""
    size = op.dim(X, axis)
    axes = attrs.get("axes")
    attrs = {k: v for k, v in attrs.items() if k != "axes"}
    attrs["extrapolation_value"] = 0.0
    policy = attrs.pop("keep_aspect_ratio_policy", "stretch")
    unit = op.EyeLike(op.full(op.Concat(size, size, axis=0), 0, op.dtype(X)))
    if roi is not None and attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        begin, end = (op.Gather(roi, [n], axis=0) for n in (i, i + count))
        zeros, ones = (op.Cast(op.constant([n] * 3), to=op.dtype(roi)) for n in (0, 1))
        roi = op.Concat(zeros, begin, ones, end, axis=0)
    else:
        roi = None
    if policy != "stretch":
        unit, scale = _same_aspect(op, X, sizes, axes, unit, size, policy, attrs)
        sizes = None
    elif sizes is None:
        scale = op.Gather(scales, [i], axis=0)
    if sizes is not None:
        scales, sizes = None, op.Concat([1], [1], size, op.dim(Y, axis), axis=0)
    else:
        scales = op.Concat(op.Cast(op.constant([1, 1, 1]), to=scale.dtype), scale, axis=0)
    if attrs.get("mode") == "nearest" or "mode" not in attrs:
        attrs.pop("antialias", None)
    whole = op.Reshape(unit, op.Concat([1], [1], size, [-1], axis=0))
    resized = op.Resize(whole, roi, scales, sizes, **attrs)
    matrix = op.Reshape(resized, op.Concat(size, [-1], axis=0))
    return matrix if policy == "stretch" else op.Slice(matrix, [0], op.dim(Y, axis), [1])


def _same_aspect(op, X, sizes, axes, unit, size, policy, attrs):
    """One scale for all axes: the least, or the greatest, of sizes / own sizes.

    Sizes are then rounded, where Resize by a scale rounds down; so the unit vectors are resized
    with their last element repeated, and the part that is too much is cut off.
    """
    if attrs.get("coordinate_transformation_mode", "half_pixel") not in _BY_SCALE:
        raise NoGradient(
            f"keeps the aspect ratio ({policy}) in a coordinate mode that depends on the size",
            'use keep_aspect_ratio_policy="stretch", or the half_pixel coordinates',
        )
    whole = op.shape(X)
    own = whole if axes is None else op.Gather(whole, op.constant(list(axes)), axis=0)
    ratios = op.Div(*(op.Cast(v, to=DataType.FLOAT) for v in (sizes, own)))
    reduce = op.ReduceMin if policy == "not_larger" else op.ReduceMax
    zero = op.constant([0])
    wider = op.Pad(unit, op.Concat(zero, zero, zero, size, axis=0), mode="edge")
    return wider, op.Reshape(reduce(ratios, keepdims=0), [1])
