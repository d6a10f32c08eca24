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
    elif last.startswith("integers"):
        packed = {"q": rng.integers(0, 256, (WORDS, 1, 16), np.uint8),
                  "s": rng.uniform(0.01, 0.1, WORDS).astype(np.float32)}  # fmt: skip
        if last == "integers, zero points":
            packed["z"] = rng.integers(
                0, 16, WORDS, np.uint8
            )  # one block in a row: half a byte of each
        elif last == "integers, zero points of any size":
            packed["z"] = rng.uniform(5, 9, WORDS).astype(np.float32)
        tensors += [numpy_helper.from_array(a, n) for n, a in packed.items()]
        nodes.append(
            make("MatMulNBits", ["y", *packed], ["logits"], domain="com.microsoft",
                 K=WIDTH, N=WORDS, bits=4, block_size=32)
        )  # fmt: skip
    elif last.startswith("Gemm"):
        settings = {"Gemm, turned": {"transB": 1}, "Gemm, scaled": {"alpha": 0.5}}.get(last, {})
        weight = "table" if settings.get("transB") else "head"
        nodes = [
            make("Gather", ["table", "input_ids"], ["x"]),
            make("Gemm", ["x", "hidden"], ["h"]),
            make("Tanh", ["h"], ["y"]),
            make("Gemm", ["y", weight], ["logits"], **settings),
        ]
    else:
        nodes.append(make("MatMul", ["y", "head"], ["logits"]))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "words",
        [info("input_ids", TensorProto.INT64, ["N"] if "Gemm" in last else ["N", "S"])],
        [info("logits", TensorProto.FLOAT, ["N", WORDS] if "Gemm" in last else ["N", "S", WORDS])], tensors,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


OPERATORS = {
    "matrix": "LinearCrossEntropy", "table": "LinearCrossEntropy", "integers": "MatMulNBitsCrossEntropy",
    "integers, zero points": "MatMulNBitsCrossEntropy",
    "integers, zero points of any size": "MatMulNBitsCrossEntropy",
    "Gemm": "LinearCrossEntropy", "Gemm, turned": "LinearCrossEntropy",
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
    if "Gemm" in last:
        x, y = x.reshape(-1), y.reshape(-1)
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


@pytest.mark.parametrize(
    ("last", "fewest"), [("Gemm, scaled", 16), ("integers", WORDS + 1), ("matrix", WORDS + 1)]
)
def test_what_the_operator_cannot_say_or_is_too_small_stays(last, fewest, monkeypatch):
    monkeypatch.setattr(scores, "FEWEST", fewest)
    trainer = Trainer(model(last), loss=CrossEntropy(ignore_index=-100), trainable=["hidden"])
    found = {n.op_type for n in trainer._plan.graph.model.proto.graph.node}
    assert not found & {*OPERATORS.values()}


def test_as_many_classes_as_it_takes_are_enough(monkeypatch):
    monkeypatch.setattr(scores, "FEWEST", WORDS)
    for last in ("matrix", "integers"):
        trainer = Trainer(model(last), loss=CrossEntropy(ignore_index=-100), trainable=["hidden"])
        assert OPERATORS[last] in {n.op_type for n in trainer._plan.graph.model.proto.graph.node}
