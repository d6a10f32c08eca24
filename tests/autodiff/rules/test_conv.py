"""Convolutions and pooling."""

import pytest
from autodiff.harness import RuleCase, agree, check, distinct, normal, table

_TWO = (17, 22)  # Conv and the pools changed in 22
CONV = [
    RuleCase("Conv", what, X=normal(*x), W=normal(*w), opsets=_TWO, **rest)
    for what, x, w, rest in [
        ("2-D", (2, 3, 6, 5), (4, 3, 3, 2), {"B": normal(4)}),
        ("1-D", (2, 3, 7), (4, 3, 3), {}),
        ("3-D", (1, 2, 4, 3, 4), (2, 2, 2, 2, 2), {}),
        ("pads", (1, 2, 5, 5), (2, 2, 3, 3), {"pads": [1, 0, 2, 1]}),
        ("strides", (1, 2, 7, 8), (2, 2, 3, 3), {"strides": [2, 3]}),
        ("strides that leave a rest", (1, 2, 8, 9), (2, 2, 3, 3), {"strides": [3, 2]}),
        ("dilations", (1, 2, 8, 8), (2, 2, 3, 2), {"dilations": [2, 3]}),
        ("strides and dilations and pads", (1, 2, 9, 8), (2, 2, 3, 2),
         {"strides": [2, 2], "dilations": [2, 3], "pads": [1, 2, 0, 1]}),
        ("groups", (2, 4, 5, 5), (6, 2, 3, 3), {"group": 2, "B": normal(6)}),
        ("depthwise", (2, 3, 5, 5), (3, 1, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
        ("kernel of 1 with strides", (1, 2, 6, 6), (3, 2, 1, 1), {"strides": [3, 3]}),
        ("SAME_UPPER", (1, 2, 5, 6), (2, 2, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ("SAME_LOWER", (1, 2, 5, 6), (2, 2, 2, 4), {"auto_pad": "SAME_LOWER", "strides": [1, 2]}),
        ("VALID", (1, 2, 5, 6), (2, 2, 2, 4), {"auto_pad": "VALID"}),
    ]
]  # fmt: skip

TRANSPOSED = [
    RuleCase("ConvTranspose", what, X=normal(*x), W=normal(*w), opsets=_TWO, **rest)
    for what, x, w, rest in [
        ("2-D", (2, 3, 4, 5), (3, 4, 3, 2), {"B": normal(4)}),
        ("1-D", (2, 3, 5), (3, 2, 3), {}),
        ("strides and pads", (1, 2, 4, 4), (2, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 0, 1]}),
        ("output_padding", (1, 2, 4, 4), (2, 3, 3, 3),
         {"strides": [2, 3], "output_padding": [1, 2], "pads": [1, 1, 1, 1]}),
        ("dilations", (1, 2, 4, 4), (2, 3, 2, 3), {"dilations": [2, 1]}),
        ("output_shape", (1, 2, 4, 4), (2, 3, 3, 3),
         {"strides": [2, 2], "output_shape": [9, 8]}),
        ("SAME_UPPER", (1, 2, 4, 4), (2, 3, 3, 3),
         {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ("SAME_LOWER", (1, 2, 4, 4), (2, 3, 3, 3),
         {"strides": [2, 3], "auto_pad": "SAME_LOWER"}),
        ("output_padding with output_shape", (1, 2, 4, 4), (2, 3, 3, 3),
         {"strides": [2, 3], "output_padding": [1, 1], "output_shape": [8, 12]}),
        ("groups", (1, 4, 4, 4), (4, 3, 2, 2), {"group": 2}),
    ]
]  # fmt: skip

POOL = [
    RuleCase(op, what, X=distinct(*x), opsets=_TWO, **rest)
    for op in ("MaxPool", "AveragePool")
    for what, x, rest in [
        ("2-D", (2, 3, 6, 6), {"kernel_shape": [2, 3]}),
        ("1-D, strides", (2, 3, 9), {"kernel_shape": [3], "strides": [2]}),
        ("3-D", (1, 2, 4, 4, 4), {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
        ("overlap and pads", (1, 2, 6, 6),
         {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 0, 1]}),
        ("ceil_mode", (1, 2, 6, 7),
         {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
        ("SAME_UPPER", (1, 2, 5, 6),
         {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ]
] + [
    RuleCase("MaxPool", "dilations", X=distinct(1, 2, 7, 7), kernel_shape=[2, 3], dilations=[2, 2],
         opsets=_TWO),
    RuleCase("MaxPool", "column major", X=distinct(1, 2, 4, 6), kernel_shape=[2, 2], storage_order=1,
         opsets=_TWO),
    RuleCase("AveragePool", "ceil_mode and count_include_pad", X=normal(1, 2, 6, 7),
         kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 1], ceil_mode=1, count_include_pad=1,
         opsets=(19, 22)),
    RuleCase("AveragePool", "count_include_pad", X=normal(1, 2, 6, 6), kernel_shape=[3, 3],
         pads=[1, 1, 1, 1], count_include_pad=1, strides=[2, 2], opsets=_TWO),
    RuleCase("AveragePool", "dilations", X=normal(1, 2, 7, 7), kernel_shape=[2, 3], dilations=[2, 2],
         opsets=(19, 22)),
    RuleCase("AveragePool", "dilations and pads", X=normal(1, 2, 7, 8), kernel_shape=[2, 3], dilations=[3, 2],
         pads=[1, 2, 1, 1], strides=[2, 1], opsets=(19, 22)),
    RuleCase("GlobalAveragePool", "2-D", X=normal(2, 3, 4, 5), opsets=_TWO),
    RuleCase("GlobalMaxPool", "2-D", X=distinct(2, 3, 4, 5), opsets=_TWO),
]  # fmt: skip


@table(CONV + TRANSPOSED + POOL)
def test_standard(case, opset, shapes):
    check(case, opset, shapes, "standard")


@pytest.mark.parametrize("case", CONV, ids=str)
def test_fused(case):
    agree(case, 17)
