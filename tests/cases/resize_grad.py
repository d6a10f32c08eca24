import numpy as np

from cases.case import Case
from cases.samples import exactly, normal, zeros

TRANSFORMS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
)


def _scaled(title, shape, scales, *, roi=None, **attributes):
    """Y has the size that the scales give."""
    axes = attributes.get("axes") or range(len(shape))
    out = list(shape)
    for a, s in zip(axes, scales, strict=True):
        out[a] = int(np.floor(np.float32(shape[a]) * np.float32(s)))
    more = {} if roi is None else {"roi": exactly(np.array(roi, np.float64))}
    return Case(
        title,
        dY=normal(*out),
        X=zeros(*shape),
        scales=exactly(np.array(scales, np.float32)),
        **more,
        **attributes,
    )


def _sized(title, shape, sizes, *, out=None, **attributes):
    """Y has these sizes."""
    full = list(shape)
    for a, s in zip(attributes.get("axes") or range(len(shape)), out or sizes, strict=True):
        full[a] = s
    return Case(
        title,
        dY=normal(*full),
        X=zeros(*shape),
        sizes=exactly(np.array(sizes, np.int64)),
        **attributes,
    )


CASES = [
    *(_scaled(f"{m}, {t}, twice as large", (1, 2, 5, 6), (1, 1, 2, 2), mode=m, coordinate_transformation_mode=t)
      for m in ("nearest", "linear", "cubic") for t in TRANSFORMS),
    *(_scaled(f"{m}, {t}, smaller", (1, 2, 9, 8), (1, 1, 0.6, 0.7), mode=m, coordinate_transformation_mode=t)
      for m in ("nearest", "linear", "cubic") for t in TRANSFORMS),
    *(_scaled(f"nearest by {n}", (1, 2, 5, 6), (1, 1, 1.7, 0.6), nearest_mode=n)
      for n in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    *(_scaled(f"nearest by {n}, asymmetric", (1, 2, 5, 6), (1, 1, 2, 3), nearest_mode=n, coordinate_transformation_mode="asymmetric")
      for n in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    _scaled("tf_half_pixel_for_nn", (1, 2, 5, 6), (1, 1, 2, 2), coordinate_transformation_mode="tf_half_pixel_for_nn"),
    *(_scaled(f"a region, {m}", (1, 2, 7, 6), (1, 1, 0.8, 0.9), roi=[0, 0, 0.2, 0.1, 1, 1, 0.8, 0.7], mode=m,
              coordinate_transformation_mode="tf_crop_and_resize") for m in ("nearest", "linear", "cubic")),
    _scaled("a region that reaches outside", (1, 2, 7, 6), (1, 1, 0.8, 0.9), roi=[0, 0, -0.3, 0.1, 1, 1, 0.8, 1.4], mode="linear",
            coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=3.0),
    *(_scaled(f"cubic without the outside, {s}", (1, 2, 6, 6), (1, 1, s, s), mode="cubic", exclude_outside=1) for s in (2.0, 0.7)),
    _scaled("cubic with another coefficient", (1, 2, 6, 6), (1, 1, 1.5, 1.5), mode="cubic", cubic_coeff_a=-0.5),
    *(_scaled(f"antialias, {m}, {e}", (1, 2, 11, 12), (1, 1, 0.4, 0.55), mode=m, antialias=1, exclude_outside=e)
      for m in ("linear", "cubic") for e in (0, 1)),
    _scaled("antialias, larger", (1, 2, 5, 6), (1, 1, 2, 2), mode="linear", antialias=1),
    _sized("sizes, linear", (1, 2, 5, 6), [1, 2, 8, 11], mode="linear"),
    _sized("sizes, nearest", (1, 2, 5, 6), [1, 2, 3, 4]),
    _sized("sizes of some axes", (1, 2, 5, 6), [9, 4], axes=[3, 2], mode="linear"),
    _sized("sizes, not larger", (1, 2, 6, 8), [9, 16], out=[9, 12], axes=[2, 3], mode="linear", keep_aspect_ratio_policy="not_larger"),
    _sized("sizes, not smaller", (1, 2, 6, 8), [9, 16], out=[12, 16], axes=[2, 3], mode="linear", keep_aspect_ratio_policy="not_smaller"),
    Case("neither scales nor sizes", dY=normal(2, 3, 8, 9), X=zeros(2, 3, 4, 5), mode="linear"),
    _scaled("scales of some axes", (2, 3, 5, 6), (2.0, 0.5), axes=[2, 3], mode="linear"),
    _scaled("one dim", (2, 3, 11), (1, 1, 1.6), mode="linear"),
    _scaled("three dims", (1, 2, 3, 4, 5), (1, 1, 2, 1.5, 0.8), mode="linear"),
    _scaled("the channels too, nearest", (1, 4, 4, 4), (1, 0.5, 2, 2)),
    _scaled("channels last", (1, 5, 6, 7), (1, 2, 2, 1), mode="linear"),
    _scaled("rows only", (2, 2, 5, 9), (1, 1, 2, 1), mode="linear"),
    _scaled("columns only", (2, 2, 9, 5), (1, 1, 1, 3), mode="linear"),
    _scaled("as large as before: a copy", (2, 2, 9, 5), (1, 1, 1, 1), mode="linear"),
    _scaled("down to one", (1, 2, 6, 7), (1, 1, 0.17, 0.15), mode="linear"),
    _scaled("from one pixel", (1, 2, 1, 1), (1, 1, 4, 5), mode="linear"),
    _scaled("an empty batch", (0, 2, 4, 4), (1, 1, 2, 2), mode="linear"),
    _scaled("many planes", (4, 40, 5, 5), (1, 1, 2, 2), mode="linear"),
    _scaled("a large plane", (1, 1, 61, 67), (1, 1, 2, 2), mode="linear"),
    _scaled("a vector", (40,), (2.5,), mode="linear"),
]  # fmt: skip
