"""Losses, and operators of onnxruntime's own domain."""

import numpy as np
import pytest
from autodiff.harness import RuleCase, agree, check, normal, positive, table

_LABELS = np.array([0, 3, 2, 1])
_GRID = np.array([[0, 3, 2], [1, 0, 4]])

LOSSES = [
    *[
        RuleCase("SoftmaxCrossEntropyLoss", what, scores=s, labels=y, wrt=("scores",), opsets=(17,),
             **rest)
        for what, s, y, rest in [
            ("mean", normal(4, 5), _LABELS, {}),
            ("sum", normal(4, 5), _LABELS, {"reduction": "sum"}),
            ("none", normal(4, 5), _LABELS, {"reduction": "none"}),
            ("weights", normal(4, 5), _LABELS, {"weights": positive(5)}),
            ("ignored label", normal(4, 5), _LABELS, {"ignore_index": 3}),
            ("weights and an ignored label outside the classes", normal(4, 5),
             np.array([0, -100, 2, 1]), {"weights": positive(5), "ignore_index": -100}),
            ("a label per pixel", normal(2, 5, 3), _GRID, {}),
            ("per pixel, none", normal(2, 5, 3), _GRID, {"reduction": "none"}),
            ("log_prob used, too", normal(4, 5), _LABELS, {"outputs": 2}),
        ]
    ],
    *[
        RuleCase("NegativeLogLikelihoodLoss", what, input=s, target=y, wrt=("input",), opsets=(17, 22),
             **rest)
        for what, s, y, rest in [
            ("mean", normal(4, 5), _LABELS, {}),
            ("none, weights", normal(4, 5), _LABELS, {"reduction": "none", "weight": positive(5)}),
            ("ignored", normal(2, 5, 3), _GRID, {"ignore_index": 0, "weight": positive(5)}),
        ]
    ],
]  # fmt: skip

_MS = {
    "domain": "com.microsoft", "opsets": (17,),
}  # fmt: skip
_IDS = np.array([[0, 2, 2], [1, 0, 3]], np.int32)

CONTRIB = [
    RuleCase("Gelu", "ordinary", X=normal(3, 4), **_MS),
    RuleCase("QuickGelu", "another alpha", X=normal(3, 4), alpha=1.3, **_MS),
    RuleCase("BiasGelu", "ordinary", A=normal(2, 3, 4), B=normal(4), **_MS),
    RuleCase("FastGelu", "ordinary", X=normal(3, 4), **_MS),
    RuleCase("FastGelu", "with bias", X=normal(3, 4), bias=normal(4), **_MS),
    *[
        RuleCase("FusedMatMul", f"transA={a} transB={b}", A=normal(2, *((4, 3) if a else (3, 4))),
             B=normal(2, *((5, 4) if b else (4, 5))), transA=a, transB=b, alpha=0.5, **_MS)
        for a in (0, 1) for b in (0, 1)
    ],
    RuleCase("FusedGemm", "Relu", A=positive(3, 4), B=positive(4, 5),
         C=np.array([5.0, -30.0, 5.0, -30.0, 5.0]), activation="Relu", **_MS),
    RuleCase("FusedConv", "Relu", X=normal(1, 2, 5, 5), W=normal(3, 2, 3, 3),
         B=np.array([40.0, -40.0, 40.0]), activation="Relu", pads=[1, 1, 1, 1],
         kernel_shape=[3, 3], **_MS),
    RuleCase("FusedConv", "a sum, then Tanh", X=normal(1, 2, 5, 5), W=normal(3, 2, 3, 3), B=normal(3),
         Z=normal(1, 3, 3, 3), activation="Tanh", kernel_shape=[3, 3], **_MS),
    RuleCase("SkipLayerNormalization", "ordinary", input=normal(2, 3, 4), skip=normal(2, 3, 4, seed=1),
         gamma=normal(4), beta=normal(4, seed=1), bias=normal(4, seed=2), **_MS),
    RuleCase("SkipSimplifiedLayerNormalization", "ordinary", input=normal(2, 3, 4),
         skip=normal(2, 3, 4, seed=1), gamma=normal(4), **_MS),
    RuleCase("SimplifiedLayerNormalization", "in ONNX's domain", X=normal(2, 3, 4), scale=normal(4),
         axis=-1, epsilon=0.01, **{**_MS, "domain": ""}),
    RuleCase("SimplifiedLayerNormalization", "both outputs used", X=normal(2, 3, 4), scale=normal(4),
         axis=-1, epsilon=0.01, **{**_MS, "domain": "", "outputs": 2}),
    RuleCase("EmbedLayerNormalization", "ordinary", input_ids=_IDS, segment_ids=_IDS % 2,
         word_embedding=normal(4, 8), position_embedding=normal(3, 8),
         segment_embedding=normal(2, 8),
         gamma=normal(8), beta=normal(8, seed=1), outputs=("float64", "int32"), shapes=("static",),
         **_MS),  # onnxruntime wants to know the shapes of the tables
]  # fmt: skip


@table(LOSSES + CONTRIB)
def test_standard(case, opset, shapes):
    check(case, opset, shapes, "standard")


@pytest.mark.parametrize("case", [c for c in CONTRIB if "Gelu" in c.op], ids=str)
def test_fused(case):
    agree(case, 17)
