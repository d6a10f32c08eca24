"""Losses of one's own, losses of several outputs, and models that end in the loss's own activation."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from train import problems
from train.problems import FLOAT, node

from onnxgrad import Trainer
from onnxgrad.train.losses import MSE, CrossEntropy, Function


def regression(outputs: int = 1) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    rng = problems.rng_for("regression")
    weights = {f"w{i}": problems.normal(rng, 3, 2) for i in range(outputs)}
    nodes = [node("MatMul", ["x", f"w{i}"], [f"y{i}"]) for i in range(outputs)]
    shape = ["N", 2]
    model = problems.make_model(
        nodes, [("x", FLOAT, ["N", 3])], [(f"y{i}", FLOAT, shape) for i in range(outputs)], weights
    )
    x = rng.standard_normal((5, 3)).astype(np.float32)
    return model, x, rng.standard_normal((5, 2)).astype(np.float32)


def losses_of(*losses) -> list[tuple[float, np.ndarray]]:
    """The loss and the gradient of w0 by each."""
    model, x, y = regression()
    found = []
    for loss in losses:
        trainer = Trainer(model, loss=loss, optimizer="sgd", lr=0.0)
        logs = trainer.step(x, y)
        assert trainer.evaluate(x, y)["loss"] == pytest.approx(logs["loss"], rel=1e-6)
        found.append((logs["loss"], trainer.store.gradient("w0").copy()))
    return found


def assert_equal(a, b) -> None:
    assert a[0] == pytest.approx(b[0], rel=1e-6)
    np.testing.assert_allclose(a[1], b[1], rtol=1e-5, atol=1e-6)


def test_a_function_over_the_builder():
    def mean_square(op, output, target):
        return op.ReduceMean(op.Pow(op.Sub(output, target), 2.0), keepdims=0)

    assert_equal(*losses_of("mse", mean_square))
    assert_equal(*losses_of("mse", Function(mean_square)))


SQUARES = """
    <ir_version: 8, opset_import: ["" : {opset}]>
    squares (float[N, K] p, float[N, K] t) => (float loss)
    <float half = {{0.5}}> {{
        d = Sub(p, t)
        s = Mul(d, d)
        m = ReduceMean <keepdims = 0> (s)
        h = Mul(m, half)
        loss = Add(h, h)
    }}"""


@pytest.mark.parametrize("opset", [17, 13])
def test_an_onnx_model(opset, tmp_path):
    loss = onnx.parser.parse_model(SQUARES.format(opset=opset))
    onnx.save(loss, tmp_path / "squares.onnx")
    assert_equal(*losses_of("mse", loss))
    assert_equal(*losses_of("mse", str(tmp_path / "squares.onnx")))


def test_an_onnxscript_function():
    pytest.importorskip("onnxscript")
    from train.script_loss import squares

    assert_equal(*losses_of("mse", squares))


def test_several_outputs_with_weights():
    model, x, y = regression(outputs=2)
    trainer = Trainer(
        model, loss={"y0": "mse", "y1": "l1"}, loss_weights={"y1": 0.5}, optimizer="sgd", lr=0.1
    )
    assert trainer.target_names == ("y0_target", "y1_target")
    p = trainer.predict(x)
    logs = trainer.step({"x": x}, {"y0_target": y, "y1_target": y})
    assert logs["y0_loss"] == pytest.approx(((p["y0"] - y) ** 2).mean(), rel=1e-5)
    assert logs["y1_loss"] == pytest.approx(np.abs(p["y1"] - y).mean(), rel=1e-5)
    assert logs["loss"] == pytest.approx(logs["y0_loss"] + 0.5 * logs["y1_loss"], rel=1e-6)
    result = trainer.evaluate({"x": x}, {"y0_target": y, "y1_target": y})
    assert set(result) == {"loss", "y0_loss", "y1_loss"}


def test_one_loss_of_several_outputs_is_said():
    model, x, y = regression(outputs=2)
    trainer = Trainer(model, loss="mse")
    assert list(map(str, trainer.notes)) == [
        "the loss is of output 'y0', the first of 2; give a dict by output name to judge others"
    ]
    assert list(trainer.get_weights()) == ["w0"]
    trainer.step(x, y)


@pytest.mark.parametrize(
    ("activation", "loss"),
    [("Softmax", "cross_entropy"), ("LogSoftmax", "cross_entropy"), ("Sigmoid", "bce")],
)
def test_an_activation_before_the_loss_is_left_out(activation, loss):
    model, x, y = regression()
    y = (y > 0).astype(np.float32) if loss == "bce" else (y[:, 0] > 0).astype(np.int64)
    plain = Trainer(model, loss=loss, optimizer="sgd", lr=0.0)
    ended = onnx.ModelProto()
    ended.CopyFrom(model)
    ended.graph.node.append(node(activation, ["y0"], ["p"]))
    ended.graph.output[0].name = "p"
    trainer = Trainer(ended, loss=loss, optimizer="sgd", lr=0.0)
    name = "CrossEntropy" if loss == "cross_entropy" else "BinaryCrossEntropy"
    assert list(map(str, trainer.notes)) == [
        f"output 'p' ends in {activation}: {name} uses the logits 'y0' before it"
    ]
    assert trainer.step(x, y)["loss"] == plain.step(x, y)["loss"]
    np.testing.assert_array_equal(trainer.store.gradient("w0"), plain.store.gradient("w0"))


def test_a_softmax_over_another_axis_stays():
    model, _, _ = regression()
    model.graph.node.append(node("Softmax", ["y0"], ["p"], axis=0))
    model.graph.output[0].name = "p"
    assert Trainer(model, loss="cross_entropy").notes == []


BAD = [
    (dict(loss="crossentropy"), "loss is 'crossentropy', expected one of cross_entropy, ce,"),
    (dict(loss=None), "loss is None, and the model has no scalar output that could be minimised"),
    (dict(loss={"z": "mse"}), "loss names the output 'z'; the outputs are 'y0'"),
    (dict(loss=3), "loss is a int, expected a name, a loss, a function or a model"),
    (dict(loss=CrossEntropy(weight=[1.0])), "CrossEntropy: weight has 1 numbers, expected 2"),
    (dict(loss=lambda op, o, t: op.Sub(o, t)), "the loss of output 'y0' has shape"),
    (dict(loss=lambda op, o, t: 1.0), "<lambda> returned a float, expected a value of the graph"),
    (dict(loss="mse", trainable="v*"), "trainable names 'v*', which matches none of the model's 1"),
    (dict(loss="mse", optimizer="adamx"), "optimizer is 'adamx', expected one of sgd, adam, adamw"),
    (dict(loss="mse", lr=-1), "AdamW: lr is -1.0, expected a number >= 0"),
    (
        dict(loss="mse", metrics="acc"),
        "metric is 'acc', expected one of accuracy, balanced_accuracy, f1,",
    ),
    (dict(loss="mse", schedule="cos"), "schedule is 'cos', expected one of constant, cosine,"),
    (dict(loss="mse", clip_norm=0), "clip_norm is 0, expected a number > 0"),
    (dict(loss="mse", accumulate=0), "accumulate is 0, expected at least 1"),
    (dict(loss="mse", dropout=1.0), "dropout is 1.0, expected 0 <= rate < 1"),
    (dict(loss="mse", groups=[{"lr": 1}]), "group 0 has no 'params', expected names or patterns"),
    (dict(loss="mse", groups=[{"params": "w0", "wd": 1}]), "AdamW has no setting 'wd'; it has lr,"),
]


@pytest.mark.parametrize(("settings", "message"), BAD, ids=[m for _, m in BAD])
def test_wrong_settings_are_refused(settings, message):
    model, _, _ = regression()
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Trainer(model, **settings)
    assert str(caught.value).startswith(message)


def test_reductions_are_checked():
    with pytest.raises(ValueError, match="MSE: reduction is 'none', expected mean or sum"):
        MSE(reduction="none")
