"""What a model ends in, where it is hard to see: the loss fits it, or a sentence says what it is taken for."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from onnxgrad import Trainer
from onnxgrad.errors import DataError
from onnxgrad.train import losses
from onnxgrad.train.row_losses import RowWeighted, SoftCrossEntropy

RNG = np.random.default_rng(11)
X = RNG.normal(size=(16, 5)).astype(np.float32)
YES = (RNG.random((16, 1)) > 0.5).astype(np.float32)
LABELS = RNG.integers(0, 3, 16)
NUMBERS = "float one = {1}, float step = {0.00390625}, uint8 zero = {0}, int64[3] turned = {2, 0, 1}, " \
          "float least = {0.01}, float most = {0.99}"  # fmt: skip


def model(end: str, width: int, inputs: str = "") -> onnx.ModelProto:
    made = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        net (float[N, 5] x{inputs}) => (float[N, {width}] y) <{NUMBERS}> {{ z = MatMul(x, w) {end} }}""")
    w = np.random.default_rng(1).normal(size=(5, width)).astype(np.float32)
    tensors = {"w": w, "bias": np.zeros(width, np.float32)}
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in tensors.items())
    return made


def outputs(proto: onnx.ModelProto, **feed) -> np.ndarray:
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return session.run(["y"], {"x": X, **feed})[0].astype(np.float64)


def bce(p: np.ndarray) -> float:
    return float(-(YES * np.log(p) + (1 - YES) * np.log(1 - p)).mean())


def nll(p: np.ndarray) -> float:
    return float(-np.log(p[np.arange(16), LABELS]).mean())


def loop_of_a_sigmoid() -> onnx.ModelProto:
    """One step of a Loop: its scan output is a sigmoid."""
    made = model("y = Sigmoid(z)", 1)
    info = helper.make_tensor_value_info
    names = [info("i", 7, []), info("go", 9, []), info("goes", 9, []), info("s", 1, ["N", 1])]
    nodes = [helper.make_node("Identity", ["go"], ["goes"]), helper.make_node("Sigmoid", ["z"], ["s"])]  # fmt: skip
    body = helper.make_graph(nodes, "body", names[:2], names[2:])
    made.graph.node[1].CopyFrom(helper.make_node("Loop", ["count", ""], ["all"], body=body))
    made.graph.node.append(helper.make_node("Squeeze", ["all", "first"], ["y"]))
    numbers = {"count": np.array(1), "first": np.array([0])}
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in numbers.items())
    return made


SIGMOIDS = {
    "quantised": lambda: model(
        "s = Sigmoid(z) q = QuantizeLinear(s, step, zero) y = DequantizeLinear(q, step, zero)", 1
    ),
    "fused by onnxruntime": lambda: model(
        'y = com.microsoft.FusedGemm <activation = "Sigmoid"> (x, w, bias)', 1
    ),
    "the power of one": lambda: model("s = Sigmoid(z) y = Pow(s, one)", 1),
    "in a Loop": loop_of_a_sigmoid,
}


@pytest.mark.parametrize("title", SIGMOIDS)
def test_a_sigmoid_is_seen_wherever_it_hides(title):
    trainer = Trainer(SIGMOIDS[title](), loss="bce", optimizer="sgd", trainable="w")
    expected = bce(outputs(model("y = Sigmoid(z)", 1)))
    assert trainer.step(X, YES)["loss"] == pytest.approx(expected, rel=1e-4)
    assert len(trainer.notes) >= 1


SOFTMAXES = {
    "quantised": ("cross_entropy", "s = Softmax(z) q = QuantizeLinear(s, step, zero) "
                  "y = DequantizeLinear(q, step, zero)"),
    "with nll": ("nll", "y = Softmax(z)"),
    "moved, with nll": ("nll", "s = Softmax(z) n = Neg(s) y = Neg(n)"),
}  # fmt: skip


@pytest.mark.parametrize("title", SOFTMAXES)
def test_a_softmax_is_never_followed_by_another(title):
    loss, end = SOFTMAXES[title]
    expected = nll(outputs(model("y = Softmax(z)", 3)))
    found = Trainer(model(end, 3), loss=loss, optimizer="sgd", trainable="w").step(X, LABELS)
    assert found["loss"] == pytest.approx(expected, rel=1e-4)


def test_a_first_batch_of_one_row_tells_as_much():
    proto = model("s = Softmax(z) y = Gather <axis = 1> (s, turned)", 3)
    trainer = Trainer(proto, loss="cross_entropy", optimizer="sgd", trainable="w")
    expected = -np.log(outputs(proto)[0, LABELS[0]])
    assert trainer.step(X[:1], LABELS[:1])["loss"] == pytest.approx(expected, rel=1e-4)


def test_probabilities_are_seen_by_losses_of_rows_and_shares():
    proto = model("s = Softmax(z) y = Gather <axis = 1> (s, turned)", 3)
    p = outputs(proto)
    weight = RNG.random(16).astype(np.float32)
    trainer = Trainer(proto, loss=RowWeighted(losses.CrossEntropy()), trainable="w")
    found = trainer.step({"x": X, "target": LABELS, "target_weight": weight})["loss"]
    each = -np.log(p[np.arange(16), LABELS])
    assert found == pytest.approx((each * weight).sum() / weight.sum(), rel=1e-4)
    shares = RNG.dirichlet([1, 1, 1], 16).astype(np.float32)
    found = Trainer(proto, loss=SoftCrossEntropy(), trainable="w").step(X, shares)["loss"]
    assert found == pytest.approx(-(shares * np.log(p)).sum(1).mean(), rel=1e-4)


@pytest.mark.parametrize("loss", ["nll_probabilities", "bce_probabilities"])
def test_a_loss_of_probabilities_refuses_what_cannot_be_any(loss):
    target = LABELS if loss.startswith("nll") else np.repeat(YES, 3, 1)
    trainer = Trainer(model("y = Identity(z)", 3), loss=loss, trainable="w")
    with pytest.raises(DataError, match="on the first batch, expected probabilities from 0 to 1"):
        trainer.step(X, target)


DOUBTS = {
    "never negative": ("bce", "y = Relu(z)", "output 'y' is never negative, and is taken as logits: "
                       "no answer can be no"),
    "no shares": ("cross_entropy", "y = Sigmoid(z)", "output 'y' lies between 0 and 1 and does not add up to 1 "
                  "over the classes: CrossEntropy takes it as logits; --loss bce fits answers that may be true "
                  "together"),
    "of rows": ("cross_entropy", "y = Softmax<axis=0>(z)", "output 'y' ends in Softmax over axis 0, and its "
                "classes are in axis 1: CrossEntropy takes it as logits"),
    "of rows, renamed": ("cross_entropy", "s = LogSoftmax<axis=-2>(z) y = Identity(s)", "output 'y' ends in "
                         "LogSoftmax over axis 0, and its classes are in axis 1: CrossEntropy takes it as logits"),
    "logarithms": ("bce", "y = LogSoftmax(z)", "output 'y' is log-probabilities, and is taken as logits"),
}  # fmt: skip


@pytest.mark.parametrize("title", DOUBTS)
def test_what_is_taken_as_logits_against_appearances_is_said(title):
    loss, end, said = DOUBTS[title]
    trainer = Trainer(model(end, 3), loss=loss, trainable="w")
    trainer.step(X, LABELS if loss == "cross_entropy" else np.repeat(YES, 3, 1))
    assert said in [str(n) for n in trainer.notes]


def test_numbers_that_could_be_probabilities_are_said_to_be_taken_as_logits():
    """log(1 + z²)/9 lies between 0 and 1 here, and nothing in the graph says that it must."""
    proto = model("q = Mul(z, z) o = Add(q, one) l = Log(o) y = Mul(l, least)", 1)
    trainer = Trainer(proto, loss="bce", optimizer="sgd", trainable="w")
    before = trainer.get_weights()["w"].copy()
    trainer.evaluate(X, YES)
    said = "output 'y' lies between 0 and 1 on the first batch, and is taken as logits; " \
           "--loss bce_probabilities takes it as probabilities"  # fmt: skip
    assert [str(n) for n in trainer.notes].count(said) == 1
    np.testing.assert_array_equal(trainer.get_weights()["w"], before)


@pytest.mark.parametrize("metric", ["accuracy", "f1", "recall"])
def test_small_logits_are_logits_for_metrics_too(metric):
    """All between 0 and ½: a probability of more than ½ each, so the answer is yes."""
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 1] x) => (float[N, 1] y) <float[1] b = {0}> { y = Add(x, b) }""")
    x = np.array([[0.2], [0.3], [0.4]], np.float32)
    trainer = Trainer(proto, loss="bce", metrics=metric, trainable="b")
    assert trainer.evaluate(x, np.ones((3, 1), np.float32))[metric] == 1


REFUSED = {
    ("mae", "cross_entropy"): "compares numbers, and the loss of output 'y' judges classes",
    ("r2", "cross_entropy"): "compares numbers, and the loss of output 'y' judges classes",
    ("rmse", "bce"): "compares numbers, and output 'y' holds logits",
    ("top2", "bce"): "looks for the label among several classes, and the loss of output 'y' judges",
    ("perplexity", "mse"): "is e to a cross entropy, and the loss of output 'y' compares numbers",
}


@pytest.mark.parametrize(("metric", "loss"), REFUSED)
def test_metrics_that_ask_another_question_are_refused(metric, loss):
    """The mean difference of logits and labels failed, or gave a number where a batch had as many rows as classes."""
    with pytest.raises(ValueError, match=REFUSED[metric, loss]):
        Trainer(model("y = Identity(z)", 3), loss=loss, metrics=metric, trainable="w")


def test_a_dropout_may_be_the_end_of_a_model(tmp_path):
    proto = model("y = Dropout(z)", 3)
    trainer = Trainer(proto, loss="cross_entropy", optimizer="sgd", lr=0.1, trainable="w")
    assert np.isfinite(trainer.step(X, LABELS)["loss"])
    trainer.save(tmp_path / "tuned.onnx")
    assert [o.name for o in onnx.load(tmp_path / "tuned.onnx").graph.output] == ["y"]
