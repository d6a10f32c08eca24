"""Y = (M₁ ⊗ M₂ ⊗ …) X, M the interpolation along one axis as ONNX Resize defines it; dX applies the transposes.

Coordinates are float32 on purpose: ONNX Runtime computes them so, and an output half-way between two elements must go
to the same one.
"""

import math

import numpy as np

f32 = np.float32


def _coordinate(how, o, size_in, size_out, scale, roi):
    x, i, n = f32(o), f32(size_in), f32(size_out)
    half = (x + f32(0.5)) / scale
    start, end = f32(roi[0]), f32(roi[1])
    shift = (
        i / f32(2) * (f32(1) - n / (scale * i))
    )  # ONNX Runtime: this in float32, the sum in double
    return {
        "half_pixel": lambda: half - f32(0.5),
        "pytorch_half_pixel": lambda: half - f32(0.5) if size_out > 1 else f32(0),
        "align_corners": lambda: x * (i - 1) / (n - 1) if size_out > 1 else f32(0),
        "asymmetric": lambda: x / scale,
        "tf_half_pixel_for_nn": lambda: half,
        "half_pixel_symmetric": lambda: f32(float(shift) + (o + 0.5) / float(scale) - 0.5),
        "tf_crop_and_resize": lambda: (
            start * (i - 1) + x * (end - start) * (i - 1) / (n - 1)
            if size_out > 1
            else f32(0.5) * (start + end) * (i - 1)
        ),
    }[how]()


MIDDLE = 0.5 + 1e-6  # onnxruntime takes what lies within 1e-6 of the middle for the middle


def _nearest(how, x):
    return {"floor": math.floor(x), "ceil": math.ceil(x), "round_prefer_floor": math.ceil(float(x) - MIDDLE),
            "round_prefer_ceil": math.floor(float(x) + MIDDLE)}[how]  # fmt: skip


def _cubic(t, a):
    t = abs(t)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def matrix(
    size_in, size_out, scale, roi, mode, how, nearest_mode, cubic_a, exclude_outside, antialias
):
    """Y = M X along one axis."""
    m = np.zeros((size_out, size_in))
    if size_in == size_out and scale == 1 and how != "tf_crop_and_resize":
        return np.eye(size_in)
    for o in range(size_out if size_in else 0):
        x = _coordinate(how, o, size_in, size_out, f32(scale), roi)
        if how == "tf_crop_and_resize" and not 0 <= x <= size_in - 1:
            continue
        if mode == "nearest":
            m[o, min(max(_nearest(nearest_mode, x), 0), size_in - 1)] = 1
            continue
        x = float(
            x if mode == "cubic" or (antialias and scale < 1) else min(max(x, 0), size_in - 1)
        )
        stretch = min(float(f32(scale)), 1.0) if antialias else 1.0
        radius = (2 if mode == "cubic" else 1) / stretch
        weights = {}
        for i in range(math.floor(x - radius), math.ceil(x + radius) + 1):
            t = (i - x) * stretch
            w = _cubic(t, cubic_a) if mode == "cubic" else max(1 - abs(t), 0.0)
            inside = 0 <= i < size_in
            if inside or not (exclude_outside and (mode == "cubic" or stretch < 1)):
                place = min(max(i, 0), size_in - 1)
                weights[place] = weights.get(place, 0.0) + w
        for place, w in weights.items():
            m[o, place] = w / sum(weights.values())
    return m


def resize_grad(dY, X, roi=None, scales=None, sizes=None, *, mode="nearest",
                coordinate_transformation_mode="half_pixel",
                nearest_mode="round_prefer_floor", cubic_coeff_a=-0.75, exclude_outside=0, extrapolation_value=0.0,
                antialias=0, axes=None, keep_aspect_ratio_policy="stretch"):  # fmt: skip
    rank = X.ndim
    listed = [a % rank for a in axes] if axes else list(range(rank))
    scale = {a: f32(dY.shape[a]) / f32(max(X.shape[a], 1)) for a in range(rank)}
    regions = dict.fromkeys(range(rank), (0.0, 1.0))
    if sizes is not None and keep_aspect_ratio_policy != "stretch":
        choose = min if keep_aspect_ratio_policy == "not_larger" else max
        common = choose(f32(s) / f32(X.shape[a]) for s, a in zip(sizes, listed, strict=True))
        scale.update(dict.fromkeys(listed, common))
    for k, a in enumerate(listed):
        if scales is not None:
            scale[a] = f32(scales[k])
        if roi is not None:
            regions[a] = (roi[k], roi[k + len(listed)])
    dx = dY
    for a in range(rank):
        m = matrix(X.shape[a], dY.shape[a], scale[a], regions[a], mode, coordinate_transformation_mode, nearest_mode,
                   cubic_coeff_a, exclude_outside, antialias)  # fmt: skip
        dx = np.moveaxis(np.tensordot(m.T, dx, (1, a)), 0, a)
    return dx
