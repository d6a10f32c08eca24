"""The last product and its cross entropy as one operator: the same loss and gradients, without the scores."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgrad import Trainer
from onnxgrad.graph.patterns import scores
from onnxgrad.train.losses import CrossEntropy

WIDTH, WORDS = 32, 40


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch):
    monkeypatch.setattr(scores, "FEWEST", 16)


def model(last: str) -> onnx.ModelProto:
    """Tokens -> a trained layer -> the product that ends it."""
    rng = np.random.default_rng(0)
    arrays = {
        "table": rng.standard_normal((WORDS, WIDTH)),
        "hidden": 0.3 * rng.standard_normal((WIDTH, WIDTH)),
        "head": 0.3 * rng.standard_normal((WIDTH, WORDS)),
    }
    make = helper.make_node
    nodes = [
        make("Gather", ["table", "input_ids"], ["x"]),
        make("MatMul", ["x", "hidden"], ["h"]),
        make("Tanh", ["h"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()]
    if last == "table":
        nodes += [
            make("Transpose", ["table"], ["turned"], perm=[1, 0]),
            make("MatMul", ["y", "turned"], ["logits"]),
        ]
    elif last == "integers":
        codes = rng.integers(0, 256, (WORDS, 1, 16), np.uint8)
        scales = rng.uniform(0.01, 0.1, WORDS).astype(np.float32)
        tensors += [numpy_helper.from_array(codes, "q"), numpy_helper.from_array(scales, "s")]
        nodes.append(
            make("MatMulNBits", ["y", "q", "s"], ["logits"], domain="com.microsoft",
                 K=WIDTH, N=WORDS, bits=4, block_size=32)
        )  # fmt: skip
    else:
        nodes.append(make("MatMul", ["y", "head"], ["logits"]))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "words",
        [info("input_ids", TensorProto.INT64, ["N", "S"])],
        [info("logits", TensorProto.FLOAT, ["N", "S", WORDS])], tensors,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


OPERATORS = {
    "matrix": "LinearCrossEntropy", "table": "LinearCrossEntropy", "integers": "MatMulNBitsCrossEntropy",
}  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("last", OPERATORS)
def test_loss_gradients_and_evaluation_are_the_same(last, reduction):
    loss = CrossEntropy(ignore_index=-100, reduction=reduction)
    made = {
        seen: Trainer(model(last), loss=loss, trainable=["hidden"], patterns=seen, metrics=metrics)
        for seen, metrics in ((True, ["perplexity"]), (False, ["accuracy"]))
    }
    nodes = {
        seen: [n.op_type for n in t._plan.graph.model.proto.graph.node] for seen, t in made.items()
    }
    assert OPERATORS[last] in nodes[True]
    assert OPERATORS[last] not in nodes[False]
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, WORDS, (3, 7)), rng.integers(0, WORDS, (3, 7))
    y[0, 2:] = -100
    found = {seen: t.evaluate(x, y)["loss"] for seen, t in made.items()}
    assert found[True] == pytest.approx(found[False], rel=1e-6)
    found = {seen: t.step(x, y)["loss"] for seen, t in made.items()}
    assert found[True] == pytest.approx(found[False], rel=1e-6)
    got, expected = (made[seen].store.gradient("hidden") for seen in (True, False))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_scores_that_somebody_reads_and_weights_that_are_trained_stay():
    loss = CrossEntropy(ignore_index=-100)
    trained = Trainer(model("matrix"), loss=loss, trainable=["hidden", "head"])
    assert "LinearCrossEntropy" not in [
        n.op_type for n in trained._plan.graph.model.proto.graph.node
    ]
