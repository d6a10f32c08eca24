"""Why a model has no weights to train: trees, numbers in attributes, integers."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

_TREES = ("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor")
_CLASSICAL = (
    "LinearClassifier", "LinearRegressor", "SVMClassifier", "SVMRegressor", "GLMClassifier", "GLMRegressor",
)  # fmt: skip
_INTEGERS = (
    "DequantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger", "ConvInteger",
    "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulNBits", "QGemm", "DynamicQuantizeLSTM", "QAttention",
)  # fmt: skip


def why_no_weights(model: ir.Model) -> str:
    """Return the end of the sentence "… has no weights that its loss depends on", maybe nothing.

    It begins with a colon, and says what the model has in their place and what to do.
    """
    kinds = Counter(node.op_type for node in ir.traversal.RecursiveGraphIterator(model.graph))
    trees, classical, whole = (_found(kinds, names) for names in (_TREES, _CLASSICAL, _INTEGERS))
    if trees:
        return (
            f": it is made of decision trees ({trees}), which no gradient can train; fit it anew "
            "with the library that made it (scikit-learn, LightGBM, XGBoost)"
        )
    if classical:
        return (
            f": its numbers are attributes of {classical} (ai.onnx.ml), and only tensors can be "
            "trained; convert it to MatMul and Add, or fit it anew with the library that made it"
        )
    if whole:
        return (
            f": its weights are quantised integers ({whole}); train the float model that it was "
            "made from, and quantise the result"
        )
    return ""


def _found(kinds: Counter, names: tuple[str, ...]) -> str:
    return ", ".join(name for name in names if kinds[name])
