"""Resize in every mode, and sampling at computed places."""

import numpy as np
import onnx
import pytest
from autodiff.harness import RuleCase, check, check_model, ints, normal, table
from onnx import TensorProto, helper, numpy_helper

_X = normal(1, 2, 5, 6)
_FLOAT = {
    "dtype": np.float32,
    "rtol": 1e-3,
    "why": "ONNX's reference lacks it, onnxruntime has floats only",
}


def f32(*numbers):
    return np.array(numbers, np.float32)


def _resize(what, x=_X, scales=None, sizes=None, opsets=(16, 19), **rest):
    given = {"scales": f32(*scales)} if scales else {"sizes": ints(*sizes)}
    return RuleCase("Resize", what, X=x, opsets=opsets, wrt=("X",), **given, **rest)


UP, DOWN = (1, 1, 2, 1.5), (1, 1, 0.6, 0.7)
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
RESIZE = [
    *[
        _resize(f"{mode}, {where}, {name}", scales=scales, mode=mode,
                coordinate_transformation_mode=where)
        for mode in ("nearest", "linear", "cubic")
        for where in COORDINATES
        for name, scales in (("up", UP), ("down", DOWN))
    ],
    *[
        _resize(f"nearest, {rounding}", scales=(1, 1, 1.7, 0.6), mode="nearest",
                nearest_mode=rounding, coordinate_transformation_mode="asymmetric", opsets=(18,))
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    ],
    _resize("sizes", sizes=(1, 2, 7, 3), mode="linear"),
    _resize("sizes, nearest", sizes=(1, 2, 10, 12), mode="nearest"),
    _resize("sizes of the run", sizes=(1, 2, 7, 3), mode="linear", computed=True,
            shapes=("static",)),
    _resize("sizes of the run, cubic", sizes=(1, 2, 7, 3), mode="cubic", computed=True,
            shapes=("static",)),
    _resize("cubic, another coefficient", scales=UP, mode="cubic", cubic_coeff_a=-0.5),
    _resize("cubic, exclude_outside", scales=DOWN, mode="cubic", exclude_outside=1),
    _resize("one axis of three", x=normal(2, 3, 5), scales=(1, 1, 2.4), mode="linear"),
    _resize("volumes", x=normal(1, 1, 3, 4, 2), scales=(1, 1, 2, 0.5, 2), mode="linear"),
    _resize("volumes, nearest", x=normal(1, 1, 3, 4, 2), scales=(1, 1, 2, 0.5, 2), mode="nearest"),
    _resize("batch and channels, nearest", x=normal(2, 3, 2, 2), scales=(2, 2, 1, 2),
            mode="nearest"),
    _resize("half_pixel_symmetric", scales=(1, 1, 1.3, 0.7), mode="linear", opsets=(19,),
            coordinate_transformation_mode="half_pixel_symmetric"),
    _resize("antialias, linear", scales=(1, 1, 0.5, 0.4), mode="linear", antialias=1,
            opsets=(18, 19)),
    _resize("antialias, cubic", scales=(1, 1, 0.5, 0.4), mode="cubic", antialias=1, opsets=(18,)),
    _resize("axes", scales=(2, 0.5), axes=[2, 3], mode="linear", opsets=(18, 19)),
    _resize("axes, sizes", sizes=(9, 4), axes=[2, 3], mode="nearest", opsets=(18,)),
    _resize("not_larger", sizes=(8, 8), axes=[2, 3], mode="linear", opsets=(18, 19),
            keep_aspect_ratio_policy="not_larger", **_FLOAT),
    _resize("not_smaller", sizes=(7, 7), axes=[2, 3], mode="linear", opsets=(18, 19),
            keep_aspect_ratio_policy="not_smaller", **_FLOAT),
    _resize("a region", sizes=(1, 2, 4, 3), mode="linear",
            roi=f32(0, 0, 0.2, 0.1, 1, 1, 0.8, 0.7),
            coordinate_transformation_mode="tf_crop_and_resize"),
    _resize("a region that reaches outside", sizes=(1, 2, 4, 3), mode="linear",
            roi=f32(0, 0, -0.3, 0.1, 1, 1, 0.8, 1.4), extrapolation_value=5.0,
            coordinate_transformation_mode="tf_crop_and_resize"),
    _resize("nothing", scales=(1, 1, 1, 1), mode="nearest"),
]  # fmt: skip

# Away from the lines between pixels, where the gradient of the grid jumps.
_GRID = normal(2, 3, 4, 2, scale=0.55) + 0.013
GRID = [
    RuleCase("GridSample", f"{mode}, {padding}, {'corners' if corners else 'edges'}",
         X=normal(2, 3, 4, 5), grid=_GRID, padding_mode=padding, align_corners=corners,
         mode=mode, opsets=(20, 22))
    for mode in ("linear", "nearest", "cubic")
    for padding in ("zeros", "border", "reflection")
    for corners in (0, 1)
] + [
    *[
        RuleCase("GridSample", f"by its older name {mode}", X=normal(2, 3, 4, 5), grid=_GRID, mode=mode,
             opsets=(16,), wrt=wrt, dtype=np.float32, rtol=2e-2,
             why="onnxruntime's version 16 is float")
        for mode, wrt in (("bilinear", ("X",)), ("bicubic", None))
    ],
    RuleCase("GridSample", "volumes", X=normal(2, 2, 3, 4, 5), grid=normal(2, 2, 3, 2, 3, scale=0.6),
         mode="linear", opsets=(20,)),
    RuleCase("GridSample", "volumes, border", X=normal(2, 2, 3, 4, 5), mode="linear",
         grid=normal(2, 2, 3, 2, 3, scale=0.8), padding_mode="border", opsets=(20,)),
    RuleCase("GridSample", "a single pixel, mirrored", X=normal(1, 2, 1, 1), padding_mode="reflection",
         grid=normal(1, 2, 2, 2, scale=0.3), mode="linear", align_corners=1, opsets=(20,)),
]  # fmt: skip
AFFINE = [
    RuleCase("AffineGrid", f"{n}-D, {'corners' if corners else 'edges'}", theta=normal(2, n, n + 1),
         size=ints(2, 3, 4, 5, 6)[: n + 2], align_corners=corners, opsets=(20,))
    for n in (2, 3)
    for corners in (0, 1)
]  # fmt: skip


@table(RESIZE + GRID + AFFINE)
def test_standard(case, opset, shapes):
    check(case, opset, shapes, "standard")


@pytest.mark.parametrize(("op", "opset"), [("Upsample", 9), ("Resize", 10), ("Resize", 11)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_older_versions(op, opset, mode):
    """They are converted; versions before 11 had the asymmetric coordinates only."""
    inputs = ["x", "roi", "scales"] if opset == 11 else ["x", "scales"]
    node = helper.make_node(op, inputs, ["y"], mode=mode)
    info = helper.make_tensor_value_info
    scales = numpy_helper.from_array(f32(1, 1, 2, 3), "scales")
    graph = helper.make_graph(
        [node], "older", [info("x", TensorProto.FLOAT, [1, 2, 3, 4])],
        [info("y", TensorProto.FLOAT, [1, 2, 6, 12])],
        [scales, numpy_helper.from_array(f32(), "roi")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=6)
    onnx.checker.check_model(model)
    check_model(model, {"x": normal(1, 2, 3, 4).astype(np.float32)}, ["x"], rtol=1e-3, step=1e-2)
