"""Einsum, determinants, Fourier transforms, regions, columns, and running products."""

import numpy as np
import onnx
from autodiff.harness import RuleCase, check, distinct, ints, make_session, normal, positive, table

from onnxgrad.autodiff import vjp

_FLOAT = {"dtype": np.float32, "rtol": 3e-3, "why": "ONNX has no double scales"}

EINSUM = [
    RuleCase("Einsum", equation, Inputs=[normal(*s, seed=i) for i, s in enumerate(shapes)],
         equation=equation, opsets=(16, 21))
    for equation, shapes in [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("ij->ji", [(2, 3)]),
        ("ij->i", [(2, 3)]),
        ("ij->", [(2, 3)]),
        ("i,i->", [(4,), (4,)]),
        ("i,j->ij", [(2,), (3,)]),
        ("ij,jk,kl->il", [(2, 3), (3, 2), (2, 4)]),
        ("ii->i", [(3, 3)]),
        ("bhqd,bhkd->bhqk", [(1, 2, 3, 4), (1, 2, 5, 4)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 2)]),
        ("...i,i->...", [(2, 3, 4), (4,)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ij,kj->i", [(2, 3), (4, 3)]),
    ]
]  # fmt: skip
OTHERS = [
    RuleCase("OptionalGetElement", "of a tensor", input=normal(2, 3), opsets=(18,)),
    RuleCase("Det", "one", X=normal(3, 3), opsets=(16, 22)),
    RuleCase("Det", "a batch", X=normal(2, 2, 4, 4), opsets=(16,)),
    RuleCase("Det", "a singular one", X=np.array([[1.0, 2], [2, 4]]), opsets=(16,)),
    RuleCase("LRN", "5 channels", X=normal(2, 7, 3, 2), size=5, alpha=0.5, beta=0.75, bias=1.5,
         opsets=(16,)),
    RuleCase("LRN", "3 channels", X=normal(2, 4, 3, 1), size=3, alpha=0.7, beta=0.5, opsets=(16,),),
    *[
        RuleCase("LpPool", f"p = {p}, {what}", X=distinct(1, 2, 5, 6), p=p, kernel_shape=[2, 3],
             opsets=(16, 18, 22), **rest)
        for p in (1, 2, 3)
        for what, rest in [("plain", {}), ("strides and pads", {"strides": [2, 2],
                                                                "pads": [1, 0, 1, 2]})]
    ],
    RuleCase("LpPool", "dilations", X=distinct(1, 2, 7), kernel_shape=[2], dilations=[3],
         opsets=(18, 22)),
    *[
        RuleCase("GlobalLpPool", f"p = {p}", X=distinct(2, 3, 4, 2), p=p, opsets=(16,))
        for p in (1, 2, 3)
    ],
    RuleCase("MaxUnpool", "2-D", X=normal(1, 2, 2, 2), I=np.array([[[[0, 3], [10, 13]],
         [[18, 19], [24, 31]]]]), kernel_shape=[2, 2], strides=[2, 2], opsets=(16,)),
    RuleCase("Col2Im", "overlapping blocks", input=normal(2, 3 * 4, 12), image_shape=ints(4, 5),
         block_shape=ints(2, 2), opsets=(18,)),
    RuleCase("Col2Im", "strides, pads, dilations", input=normal(1, 2 * 6, 9), image_shape=ints(5, 6),
         block_shape=ints(2, 3), strides=[2, 2], pads=[1, 0, 1, 1], dilations=[2, 1],
         opsets=(18,)),
    *[
        RuleCase("CumProd", what, x=positive(3, 4), axis=np.array(1), opsets=(26,), **rest)
        for what, rest in [("plain", {}), ("exclusive", {"exclusive": 1}),
                           ("reverse", {"reverse": 1}),
                           ("both", {"exclusive": 1, "reverse": 1})]
    ],
    *[
        RuleCase("RoiAlign", f"{mode}, ratio {ratio}", X=normal(2, 3, 6, 7), wrt=("X",),
             rois=np.array([[0.4, 0.7, 4.2, 5.1], [-2, 1, 9, 3.3], [2, 2, 2.4, 2.3]]),
             batch_indices=ints(0, 1, 1), output_height=3, output_width=2, sampling_ratio=ratio,
             coordinate_transformation_mode=mode, spatial_scale=0.9, opsets=(16, 22))
        for mode in ("half_pixel", "output_half_pixel")
        for ratio in (1, 3)
    ],
]  # fmt: skip


def _dft(what, *shape, opset, **rest):
    return RuleCase("DFT", what, input=normal(*shape), opsets=(opset,), **rest)


TRANSFORMS = [
    _dft("complex", 2, 5, 2, opset=17),
    _dft("complex, in the newer form", 2, 5, 2, opset=20),
    _dft("real", 2, 6, 1, opset=17),
    _dft("inverse", 2, 5, 2, opset=17, inverse=1),
    _dft("one-sided", 2, 6, 1, opset=17, onesided=1),
    _dft("one-sided, odd", 2, 5, 1, opset=20, onesided=1),
    _dft("another axis", 4, 3, 2, opset=17, axis=0),
    _dft("another axis, as an input", 4, 3, 2, opset=20, axis=np.array(0)),
    _dft("its own axis among many: the second", 2, 5, 3, 2, opset=17),
    _dft("its own axis among many: the last but one", 2, 5, 3, 2, opset=20),
    _dft("cut", 2, 6, 2, opset=17, dft_length=np.array(4)),
    _dft("filled", 2, 5, 2, opset=17, dft_length=np.array(8)),
]

SCALES = [
    RuleCase("DequantizeLinear", what, x=x, x_scale=scale, x_zero_point=zero, wrt=("x_scale",),
         opsets=opsets, **rest, **_FLOAT)
    for what, x, scale, zero, opsets, rest in [
        ("per tensor", np.arange(-6, 6, dtype=np.int8).reshape(3, 4), positive(),
         np.array(3, np.int8), (16, 21), {}),
        ("without a zero point", np.arange(12, dtype=np.uint8).reshape(3, 4), positive(), None,
         (16,), {}),
        ("per channel", np.arange(24, dtype=np.uint8).reshape(2, 3, 4), positive(3),
         np.array([1, 2, 3], np.uint8), (16, 21), {"axis": 1}),
        ("per column", np.arange(6, dtype=np.int8).reshape(2, 3), positive(3),
         np.array([1, 2, 3], np.int8), (16,), {"axis": -1}),
        ("per block", np.arange(24, dtype=np.int8).reshape(6, 4), positive(3, 4), None, (21,),
         {"axis": 0, "block_size": 2}),
    ]
]  # fmt: skip


@table(EINSUM + OTHERS + TRANSFORMS + SCALES)
def test_standard(case, opset, shapes):
    check(case, opset, shapes, "standard")


QUANTIZE = [RuleCase("QuantizeLinear", "judged by test_straight_through", x=normal(2), opsets=())]


def test_straight_through():
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[4] x) => (float[4] y) <float s = {0.5}, uint8 z = {10}>
        { q = QuantizeLinear(x, s, z)  r = Reshape(q, shape)  y = DequantizeLinear(r, s, z) }
    """.replace("uint8 z = {10}", "uint8 z = {10}, int64[1] shape = {4}")
    )
    g = vjp(model, wrt=["x", "s"], ops="standard")
    onnx.checker.check_model(g, full_check=True)
    x, dy = np.array([0.6, -3.1, -9, 200], np.float32), np.array([1, 2, 3, 4], np.float32)
    out = make_session(g).run(["x_grad", "s_grad"], {"x": x, "y_grad": dy})
    assert out[0].tolist() == [1, 2, 0, 0]  # the last two are saturated, at 0 and at 255
    inside = 1 * (1 - 0.6 / 0.5) + 2 * (-6 + 3.1 / 0.5)
    np.testing.assert_allclose(out[1], inside + 3 * (0 - 10) + 4 * (255 - 10), rtol=1e-6)
