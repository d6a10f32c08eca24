"""Sampling at computed places, in any number of dimensions.

GridSample: a point reads K neighbours along each spatial axis. With places p, weights w and
slopes w' = dw/dx per axis, Y = Σ X[p, q, …]·w·v·…, so dX adds dY·w·v·… at the places, and the
gradient along one axis is Σ dY·X[p, q, …]·w'·v·…. What lies outside is masked, clipped or
mirrored, place by place: interpolation between mirrored pixels is mirrored interpolation.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx_ir import DataType

from onnxgrad.autodiff.rule import NoGradient, rule

CUBIC = -0.75  # the coefficient of Keys's cubic, as in PyTorch
NEIGHBOURS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}  # along an axis


@dataclass
class Taps:
    """The neighbours of every point along one axis, each [N, P, K]."""

    places: Any
    weights: Any
    slopes: Any
    scale: Any  # of a grid step in pixels


@rule("GridSample", wrt="X grid")
def grid_sample(op, X, grid, dY, *, attrs, need):
    """Points are taken together as [N, P]; X is [N, C, S], S all its pixels."""
    depth = op.rank(X) - 2
    n, c = op.dim(X, 0), op.dim(X, 1)
    points = op.Reshape(grid, op.Concat(n, [-1], [depth], axis=0))
    axes = [_axis(op, X, points, i, attrs) for i in range(depth)]
    where = _flat(op, X, [_spread(op, a.places, i, depth) for i, a in enumerate(axes)])
    taps = NEIGHBOURS[attrs.get("mode", "linear")] ** depth
    where = op.Expand(
        op.Reshape(where, op.Concat(n, [1], [-1], axis=0)), op.Concat([1], c, [1], axis=0)
    )
    pixels = op.Reshape(X, op.Concat(n, c, [-1], axis=0))
    dy = op.Reshape(dY, op.Concat(n, c, [-1], [1], axis=0))

    def product(chosen):
        """Σ-ready weights [N, 1, P, taps]: one factor per axis."""
        whole = None
        for i, factor in enumerate(chosen):
            factor = _spread(op, factor, i, depth)
            whole = factor if whole is None else op.Mul(whole, factor)
        return op.Reshape(whole, op.Concat(n, [1], [-1], [taps], axis=0))

    weights = [a.weights for a in axes]
    dX = dgrid = None
    if "X" in need:
        updates = op.Reshape(op.Mul(dy, product(weights)), op.Concat(n, c, [-1], axis=0))
        zeros = op.full_like(pixels, 0)
        dX = op.ScatterElements(zeros, where, updates, axis=2, reduction="add")
        dX = op.reshape_like(dX, X)
    if "grid" in need:
        read = op.Reshape(
            op.GatherElements(pixels, where, axis=2), op.Concat(n, c, [-1], [taps], axis=0)
        )
        each = op.ReduceSum(op.Mul(dy, read), [1], keepdims=1)  # [N, 1, P, taps]
        parts = []
        for i, axis in enumerate(axes):
            slope = product([axis.slopes if j == i else w for j, w in enumerate(weights)])
            along = op.ReduceSum(op.Mul(each, slope), [1, 3], keepdims=0)  # [N, P]
            parts.append(op.Unsqueeze(op.Mul(along, axis.scale), [2]))
        dgrid = op.reshape_like(op.Concat(*reversed(parts), axis=2), grid)  # x comes first
    return dX, dgrid


@rule("AffineGrid", wrt="theta")
def affine_grid(op, theta, size, dgrid, *, align_corners):
    """grid = G·thetaᵀ, G [P, depth + 1] the plain grid and ones: dthetaᵀ = Gᵀ·dgrid.

    G is the AffineGrid of the identity.
    """
    depth = op.dims(theta)[1] if op.dims(theta) is not None else None
    depth = depth if isinstance(depth, int) else op.rank(dgrid) - 2
    kind = op.dtype(theta)
    unit = op.constant(np.eye(depth, depth + 1)[None], kind)
    one = op.Concat([1], op.Slice(size, [1], [depth + 2], [0]), axis=0)
    plain = op.Reshape(op.AffineGrid(unit, one, align_corners=align_corners), [-1, depth])
    ones = op.full(op.Concat(op.dim(plain, 0), [1], axis=0), 1, kind)
    G = op.Concat(plain, ones, axis=1)
    flat = op.Reshape(dgrid, op.Concat(op.dim(theta, 0), [-1], [depth], axis=0))
    return op.MatMul(op.Transpose(flat, perm=[0, 2, 1]), G)


def _axis(op, X, points, i, attrs):
    """The taps along spatial axis i, which is entry depth - 1 - i of a point."""
    depth = op.rank(X) - 2
    entry = depth - 1 - i
    size = op.dim(X, 2 + i)
    length = op.Cast(size, to=op.dtype(points))
    one = op.Squeeze(op.Slice(points, [entry], [entry + 1], [2]), [2])  # [N, P]
    corners = attrs.get("align_corners", 0)
    # From [-1, 1] to pixels: the corners are the outermost centres, or the outermost edges.
    span = op.Sub(length, 1.0) if corners else length
    scale = op.Mul(span, 0.5)
    x = op.Mul(op.Add(one, 1.0), scale)
    x = x if corners else op.Sub(x, 0.5)
    places, weights, slopes = _neighbours(op, op.Unsqueeze(x, [2]), attrs.get("mode", "linear"))
    places = op.Cast(places, to=DataType.INT64)
    places, inside = _bounded(op, places, size, attrs.get("padding_mode", "zeros"), corners)
    if inside is not None:
        weights = op.Where(inside, weights, 0.0)
        slopes = op.Where(inside, slopes, 0.0)
    return Taps(places, weights, slopes, scale)


def _neighbours(op, x, mode):
    """Places, weights and slopes for x [N, P, 1]."""
    if mode == "nearest":
        place = op.Round(x)
        return place, op.full_like(x, 1), op.full_like(x, 0)
    base = op.Floor(x)
    f = op.Sub(x, base)
    kind = op.dtype(x)
    if mode in ("linear", "bilinear"):
        places = op.Add(base, op.constant([0, 1], kind))
        slopes = op.Add(op.Mul(f, 0.0), op.constant([-1, 1], kind))
        return places, op.Concat(op.Sub(1.0, f), f, axis=2), slopes
    places = op.Add(base, op.constant([-1, 0, 1, 2], kind))
    d = op.Sub(x, places)
    t, a = op.Abs(d), CUBIC
    near = op.LessOrEqual(t, 1.0)
    # |t| <= 1: (a+2)t³ - (a+3)t² + 1, else a·t³ - 5a·t² + 8a·t - 4a
    weights = op.Where(
        near,
        _polynomial(op, t, a + 2, -(a + 3), 0, 1),
        _polynomial(op, t, a, -5 * a, 8 * a, -4 * a),
    )
    slopes = op.Where(
        near,
        _polynomial(op, t, 0, 3 * (a + 2), -2 * (a + 3), 0),
        _polynomial(op, t, 0, 3 * a, -10 * a, 8 * a),
    )
    return places, weights, op.Mul(slopes, op.Sign(d))


def _polynomial(op, t, *coefficients):
    """Horner's scheme, the highest power first."""
    value = None
    for c in coefficients:
        value = op.Add(op.Mul(value, t) if value is not None else op.Mul(t, 0.0), float(c))
    return value


def _bounded(op, places, size, padding, corners):
    """Places inside the image, and which of them count; None is all."""
    last = op.Sub(size, [1])
    clipped = op.Max(op.Min(places, last), [0])
    if padding == "zeros":
        return clipped, op.Equal(clipped, places)
    if padding == "border":
        return clipped, None
    # Mirrored about the outermost centres (period 2·(size - 1)) or edges (period 2·size).
    period = op.Max(op.Mul(last if corners else size, [2]), [1])
    place = op.Mod(places, period)
    other = op.Sub(period, place) if corners else op.Sub(op.Sub(period, [1]), place)
    return op.Max(op.Min(op.Min(place, other), last), [0]), None


def _spread(op, x, i, depth):
    """[N, P, K] -> [N, P, 1…, K, …1]: axis i among the axes of taps."""
    axes = [2 + j for j in range(depth) if j != i]
    return op.Unsqueeze(x, axes) if axes else x


def _flat(op, X, places):
    """The number of each pixel among all of an image: Horner's scheme over the axes."""
    whole = None
    for i, place in enumerate(places):
        whole = place if whole is None else op.Add(op.Mul(whole, op.dim(X, 2 + i)), place)
    return whole


@rule("RoiAlign", wrt="X", stop="rois")
def roi_align(op, X, rois, batch_indices, dY, *, attrs):
    """Each region r is averaged from X by a matrix along each axis: Y = A[r]·X[b]·B[r]ᵀ.

    So X[b] gets Aᵀ·dY·B from each of its regions.
    """
    attrs = {"sampling_ratio": 0, "mode": "avg", "output_height": 1, "output_width": 1} | attrs
    ratio = attrs["sampling_ratio"]
    if attrs["mode"] != "avg" or ratio <= 0:
        what = "takes maxima" if attrs["mode"] != "avg" else "chooses its samples by region"
        raise NoGradient(
            f"{what} (mode {attrs['mode']!r}, sampling_ratio {ratio})",
            'use mode "avg" with a sampling_ratio above 0',
        )
    A = _roi_matrix(op, X, rois, 1, 2, attrs["output_height"], ratio, attrs)
    B = _roi_matrix(op, X, rois, 0, 3, attrs["output_width"], ratio, attrs)
    A, B = op.Unsqueeze(A, [1]), op.Unsqueeze(B, [1])  # the same for every channel
    each = op.MatMul(op.MatMul(op.Transpose(A, perm=[0, 1, 3, 2]), dY), B)  # [R, C, H, W]
    images = op.Unsqueeze(op.range(op.dim(X, 0)), [1])
    batch = op.Cast(op.Unsqueeze(batch_indices, [0]), to=DataType.INT64)
    member = op.Cast(op.Equal(images, batch), to=op.dtype(X))  # [N, R]
    flat = op.Reshape(each, op.Concat(op.dim(rois, 0), [-1], axis=0))
    return op.reshape_like(op.MatMul(member, flat), X)


def _roi_matrix(op, X, rois, entry, axis, bins, ratio, attrs):
    """[R, bins, size]: bilinear weights along one axis, the mean over `ratio` samples per bin."""
    scale = float(attrs.get("spatial_scale", 1.0))
    # [R, 1] each
    begin, end = (op.Mul(op.Slice(rois, [i], [i + 1], [1]), scale) for i in (entry, entry + 2))
    if attrs.get("coordinate_transformation_mode", "half_pixel") == "half_pixel":
        begin, length = op.Sub(begin, 0.5), op.Sub(end, begin)
    else:
        length = op.Max(op.Sub(end, begin), 1.0)
    # sample k of all: begin + (k + ½)·length / (bins·ratio)
    at = (np.arange(bins * ratio) + 0.5) / (bins * ratio)
    place = op.Add(begin, op.Mul(length, op.constant(at, op.dtype(rois))))  # [R, bins·ratio]
    size = op.dim(X, axis)
    length = op.Cast(size, to=op.dtype(rois))
    inside = op.And(op.GreaterOrEqual(place, -1.0), op.LessOrEqual(place, length))
    place = op.Max(op.Min(place, op.Sub(length, 1.0)), 0.0)
    pixels = op.Cast(op.range(size), to=op.dtype(rois))
    near = op.Sub(1.0, op.Abs(op.Sub(op.Unsqueeze(place, [2]), pixels)))
    weights = op.Where(op.Unsqueeze(inside, [2]), op.Max(near, 0.0), 0.0)
    split = op.Concat([-1], [bins], [ratio], size, axis=0)
    return op.ReduceMean(op.Reshape(weights, split), [2], keepdims=0)
