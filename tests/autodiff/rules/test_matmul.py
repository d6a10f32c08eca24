"""Matrix products and reductions."""

import numpy as np
from autodiff.harness import RuleCase, check, distinct, ints, normal, positive, table

_REDUCTIONS = [
    ("ReduceSum", normal(2, 3, 4)),
    ("ReduceMean", normal(2, 3, 4)),
    ("ReduceSumSquare", normal(2, 3, 4)),
    ("ReduceL1", distinct(2, 3, 4)),
    ("ReduceL2", normal(2, 3, 4)),
    ("ReduceLogSum", positive(2, 3, 4)),
    ("ReduceLogSumExp", normal(2, 3, 4)),
    ("ReduceMax", distinct(2, 3, 4)),
    ("ReduceMin", distinct(2, 3, 4)),
    ("ReduceProd", normal(2, 3, 4)),
]
_AXES = [
    ("all axes", {}),
    ("all axes, dropped", {"keepdims": 0}),
    ("a middle axis", {"axes": ints(1)}),
    ("two axes, dropped", {"axes": ints(0, -1), "keepdims": 0}),
]

CASES = [
    RuleCase("Gemm", "plain", A=normal(3, 4), B=normal(4, 5)),
    *[
        RuleCase("Gemm", f"transA={a} transB={b}", A=normal(*((4, 3) if a else (3, 4))),
             B=normal(*((5, 4) if b else (4, 5))), C=normal(5), transA=a, transB=b,
             alpha=1.5, beta=0.5)
        for a in (0, 1) for b in (0, 1)
    ],
    RuleCase("Gemm", "scalar C", A=normal(3, 4), B=normal(4, 5), C=normal(1)),
    RuleCase("Gemm", "column C", A=normal(3, 4), B=normal(4, 5), C=normal(3, 1)),
    RuleCase("Gemm", "an empty batch", A=normal(0, 4), B=normal(4, 5), C=normal(5)),
    *[
        RuleCase("MatMul", what, A=A, B=B)
        for what, A, B in [
            ("matrices", normal(3, 4), normal(4, 5)),
            ("a batch and a matrix", normal(2, 3, 4), normal(4, 5)),
            ("a deep batch and a matrix", normal(2, 2, 3, 4), normal(4, 5)),
            ("two batches", normal(2, 3, 4), normal(2, 4, 5)),
            ("batches broadcast", normal(2, 1, 3, 4), normal(5, 4, 2)),
            ("a matrix and a batch", normal(3, 4), normal(2, 4, 5)),
            ("vectors", normal(4), normal(4)),
            ("a vector and a matrix", normal(4), normal(4, 5)),
            ("a matrix and a vector", normal(3, 4), normal(4)),
            ("a batch and a vector", normal(2, 3, 4), normal(4)),
            ("a vector and a batch", normal(4), normal(2, 4, 5)),
        ]
    ],
    *[RuleCase(op, what, data=x, **axes) for op, x in _REDUCTIONS for what, axes in _AXES],
    *[
        RuleCase(op, "no axes: nothing happens", data=positive(2, 3), noop_with_empty_axes=1,
             opsets=(18, 21))
        for op in ("ReduceSum", "ReduceMean", "ReduceMax")
    ],
    *[
        RuleCase("ReduceMean", f"{what}, keepdims={keep}", data=x, axes=ints(*axes), keepdims=keep)
        for what, x, axes in [
            ("an image", normal(2, 3, 4, 5), (2, 3)),
            ("a volume, from the end", normal(2, 3, 2, 3, 4), (-1, -3, -2)),
            ("not all of an image", normal(2, 3, 4, 5), (1, 2)),
            ("an empty batch of images", normal(0, 3, 4, 5), (2, 3)),
        ]
        for keep in (0, 1)
    ],
    RuleCase("ReduceSum", "computed axes", data=normal(2, 3, 4), axes=ints(0, 2), keepdims=0,
         computed=True),
    RuleCase("ReduceMean", "computed axes", data=normal(2, 3, 4), axes=ints(1), keepdims=0,
         computed=True, opsets=(18, 21)),
    RuleCase("ReduceProd", "one zero", data=np.array([[1.0, 0.0, 3.0], [2.0, 3.0, 4.0]]), axes=ints(1)),
    RuleCase("ReduceProd", "two zeros", data=np.array([[0.0, 0.0, 3.0], [2.0, 3.0, 4.0]]),
         axes=ints(1)),
    *[
        RuleCase("CumSum", f"exclusive={e} reverse={r}", x=normal(3, 4), axis=np.array(1), exclusive=e,
             reverse=r)
        for e in (0, 1) for r in (0, 1)
    ],
]  # fmt: skip


@table(CASES)
def test_standard(case, opset, shapes):
    check(case, opset, shapes, "standard")
