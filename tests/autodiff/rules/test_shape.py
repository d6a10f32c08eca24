"""Operators that move elements, and operators that pick them."""

import numpy as np
from autodiff.harness import RuleCase, check, distinct, ints, normal, positive, table

_X = normal(4, 5, 6)

CASES = [
    RuleCase("Reshape", "plain", data=normal(3, 4), shape=ints(2, -1)),
    RuleCase("Reshape", "copied dimension", data=normal(3, 4), shape=ints(0, 2, -1)),
    RuleCase("Reshape", "computed shape", data=normal(3, 4), shape=ints(2, -1), computed=True),
    RuleCase("Reshape", "an empty batch", data=normal(0, 4), shape=ints(0, 2, 2)),
    RuleCase("Flatten", "axis 2", input=normal(2, 3, 4), axis=2),
    RuleCase("Squeeze", "all", data=normal(1, 3, 1)),
    RuleCase("Squeeze", "one", data=normal(1, 3, 1), axes=ints(-1)),
    RuleCase("Unsqueeze", "two", data=normal(3, 4), axes=ints(0, -1)),
    RuleCase("Transpose", "reversed", data=normal(2, 3, 4)),
    RuleCase("Transpose", "a cycle", data=normal(2, 3, 4), perm=[1, 2, 0]),
    RuleCase("Expand", "along two axes", input=normal(3, 1), shape=ints(2, 3, 4)),
    RuleCase("Expand", "computed shape", input=normal(3, 1), shape=ints(2, 3, 4), computed=True),
    RuleCase("Expand", "to nothing new", input=normal(3, 4), shape=ints(1, 4)),
    RuleCase("Tile", "two axes", input=normal(2, 3), repeats=ints(2, 3)),
    RuleCase("Tile", "computed repeats", input=normal(2, 3), repeats=ints(1, 2), computed=True),
    RuleCase("Concat", "last axis", inputs=[normal(2, 3), normal(2, 1), normal(2, 4)], axis=-1),
    RuleCase("Concat", "a single input", inputs=[normal(2, 3)], axis=0),
    RuleCase("Split", "given sizes", input=normal(5, 2), split=ints(2, 3), outputs=2),
    RuleCase("Split", "along axis 1", input=normal(2, 6), split=ints(1, 2, 3), axis=1, outputs=3),
    RuleCase("Slice", "plain", data=_X, starts=ints(1, 0), ends=ints(3, 4)),
    RuleCase("Slice", "negative ends", data=_X, starts=ints(-3), ends=ints(-1), axes=ints(1)),
    RuleCase("Slice", "starts before the beginning", data=_X, starts=ints(-9), ends=ints(2), axes=ints(1)),
    RuleCase("Slice", "starts behind the end", data=_X, starts=ints(9), ends=ints(12), axes=ints(1)),
    RuleCase("Slice", "past the end", data=_X, starts=ints(1), ends=ints(2**62), axes=ints(-1)),
    RuleCase("Slice", "steps of 2", data=_X, starts=ints(0, 1), ends=ints(9, 9), axes=ints(0, 2),
         steps=ints(2, 2)),
    RuleCase("Slice", "backwards", data=_X, starts=ints(-1), ends=ints(-9), axes=ints(1),
         steps=ints(-1)),
    RuleCase("Slice", "computed", data=_X, starts=ints(1, -2), ends=ints(3, 9), axes=ints(2, 0),
         computed=True),
    RuleCase("Slice", "computed, no axes", data=_X, starts=ints(1, -2), ends=ints(3, 9), computed=True),
    RuleCase("Slice", "empty", data=_X, starts=ints(2), ends=ints(2), axes=ints(0)),
    RuleCase("Slice", "of int32", data=_X, starts=np.array([1], np.int32),
         ends=np.array([3], np.int32)),
    RuleCase("Pad", "constant", data=normal(2, 3), pads=ints(1, 0, 0, 2)),
    RuleCase("Pad", "constant with a value", data=normal(2, 3), pads=ints(1, 0, 0, 2),
         constant_value=normal()),
    RuleCase("Pad", "negative", data=normal(4, 5), pads=ints(-1, 1, 0, -2)),
    RuleCase("Pad", "negative with a value", data=normal(4, 5), pads=ints(-1, 1, 0, -2),
         constant_value=normal()),
    RuleCase("Pad", "computed", data=normal(4, 5), pads=ints(1, 1, 0, 2), computed=True),
    RuleCase("Pad", "axes", data=normal(4, 5), pads=ints(1, 2), axes=ints(1), opsets=(18, 21)),
    RuleCase("Pad", "reflect", data=normal(4, 5), pads=ints(1, 2, 2, 0), mode="reflect"),
    RuleCase("Pad", "edge", data=normal(4, 5), pads=ints(1, 2, 2, 0), mode="edge"),
    RuleCase("Pad", "wrap", data=normal(4, 5), pads=ints(1, 2, 2, 0), mode="wrap", opsets=(19, 21)),
    RuleCase("DepthToSpace", "DCR", input=normal(2, 8, 3, 2), blocksize=2),
    RuleCase("DepthToSpace", "CRD", input=normal(2, 8, 3, 2), blocksize=2, mode="CRD"),
    RuleCase("SpaceToDepth", "plain", input=normal(2, 3, 4, 6), blocksize=2),
    RuleCase("ReverseSequence", "plain", input=normal(4, 3, 2), sequence_lens=ints(2, 4, 1)),
    RuleCase("ReverseSequence", "batch first", input=normal(3, 4), sequence_lens=ints(2, 4, 1),
         batch_axis=0, time_axis=1),
    RuleCase("Trilu", "upper", input=normal(3, 4)),
    RuleCase("Trilu", "lower, shifted", input=normal(2, 3, 4), k=np.array(1), upper=0),
    RuleCase("Gather", "rows", data=normal(5, 3), indices=np.array([[0, 4], [4, -1]])),
    RuleCase("Gather", "columns", data=normal(2, 5, 3), indices=ints(1, 1, 3), axis=1),
    RuleCase("Gather", "the last axis, from the end", data=normal(2, 3, 5), indices=ints(4, 0, 4), axis=-1),
    RuleCase("Gather", "a middle axis, from the end", data=normal(2, 5, 3), indices=ints(4, 4), axis=-2),
    RuleCase("Gather", "a scalar index", data=normal(5, 3), indices=np.array(2), axis=1),
    RuleCase("Gather", "computed indices", data=normal(5, 3), indices=ints(0, 4), computed=True),
    RuleCase("Gather", "int32 indices", data=normal(5, 3), indices=np.array([1, 1], np.int32)),
    RuleCase("GatherElements", "axis 1", data=normal(2, 4), indices=np.array([[0, 0], [3, -1]]),
         axis=1),
    RuleCase("GatherND", "elements", data=normal(3, 4), indices=np.array([[0, 1], [2, -1], [0, 1]])),
    RuleCase("GatherND", "slices", data=normal(3, 4, 2), indices=np.array([[[0], [2]], [[0], [-1]]])),
    RuleCase("GatherND", "batch_dims", data=normal(2, 3, 4),
         indices=np.array([[[1], [1]], [[0], [-1]]]), batch_dims=1),
    *[
        RuleCase("ScatterElements", f"reduction {r}", data=positive(3, 4),
             updates=positive(2, 3, seed=1), axis=0, reduction=r,
             indices=np.array([[0, 1, 2], [2, 0, 1]]), opsets=o)
        for r, o in [("none", (16, 18)), ("add", (16, 18)), ("mul", (16, 18)), ("max", (18,)),
                     ("min", (18,))]
    ],
    *[
        RuleCase("ScatterND", f"reduction {r}", data=positive(3, 4), updates=positive(2, 4, seed=1),
             indices=np.array([[2], [0]]), reduction=r, opsets=o)
        for r, o in [("none", (16, 18)), ("add", (16, 18)), ("mul", (16, 18)), ("max", (18,)),
                     ("min", (18,))]
    ],
    RuleCase("ScatterND", "repeated indices add", data=normal(3, 4), updates=normal(3, 4, seed=1),
         indices=np.array([[2], [0], [2]]), reduction="add"),
    RuleCase("Where", "broadcast", condition=np.array([[True], [False]]), X=normal(2, 3), Y=normal(3)),
    RuleCase("Where", "scalar X", condition=np.array([[True], [False]]), X=normal(), Y=normal(2, 3)),
    RuleCase("TopK", "largest", X=distinct(3, 5), K=ints(2), outputs=2),
    RuleCase("TopK", "smallest on axis 0", X=distinct(3, 5), K=ints(2), axis=0, largest=0, outputs=2),
    RuleCase("Compress", "axis 1", input=normal(2, 4), condition=np.array([True, False, True]), axis=1),
    RuleCase("Compress", "flat", input=normal(2, 3), condition=np.array([True, False, False, True])),
    RuleCase("OneHot", "gradient of the values", indices=ints(0, 2, -1), depth=np.array(3),
         values=normal(2), axis=0),
]  # fmt: skip


@table(CASES)
def test_standard(case, opset, shapes):
    check(case, opset, shapes, "standard")
