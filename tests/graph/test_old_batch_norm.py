"""BatchNormalization with five outputs, the training form of opsets 7 to 13: gradients, Trainer, drop-in."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from reference.batch_norm_internal import batch_norm_internal
from reference.batch_normalization_grad import batch_normalization_grad

import onnxgrad
from onnxgrad import Trainer, artifacts
from onnxgrad.api import CheckpointState, Module
from onnxgrad.graph.batch_norm import to_inference

RANDOM = np.random.default_rng(3)
WEIGHTS = {
    "w": RANDOM.normal(size=(4, 3)), "b": RANDOM.normal(size=4),
    "scale": RANDOM.normal(size=4), "shift": RANDOM.normal(size=4),
    "mean": RANDOM.normal(size=4), "var": RANDOM.uniform(1, 2, size=4),
}  # fmt: skip
X = RANDOM.normal(size=(6, 3)).astype(np.float32)
DY = RANDOM.normal(size=(6, 4)).astype(np.float32)
TRAINED = ["w", "b", "scale", "shift"]
FORMS = [(opset, batch) for opset in (7, 8, 9, 10, 11, 12, 13) for batch in (6, "N")]
FIVE = ["y", "new_mean", "new_var", "saved_mean", "saved_var"]


def network(opset: int, batch, outputs=FIVE, graph_outputs=("y",)) -> onnx.ModelProto:
    """Gemm, then BatchNormalization in training form, whose bias in front cannot matter."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        helper.make_node(
            "BatchNormalization", ["h", "scale", "shift", "mean", "var"], outputs,
            name="norm", momentum=0.8, epsilon=1e-3,
        ),
    ]  # fmt: skip
    dims = {"y": [batch, 4]}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims.get(n, [4])) for n in graph_outputs],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in WEIGHTS.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=6)


def forward() -> tuple:
    w = {k: v.astype(np.float32).astype(np.float64) for k, v in WEIGHTS.items()}
    h = X.astype(np.float64) @ w["w"].T + w["b"]
    norm = [w[n] for n in ("scale", "shift", "mean", "var")]
    return h, w, batch_norm_internal(h, *norm, epsilon=1e-3, momentum=0.8)


def gradients(dy: np.ndarray) -> dict[str, np.ndarray]:
    h, w, (_, _, _, mean, inverse) = forward()
    dh, dscale, dshift = batch_normalization_grad(dy, h, w["scale"], mean, inverse)
    return {"w": dh.T @ X, "b": dh.sum(0), "scale": dscale, "shift": dshift}


@pytest.mark.parametrize("ops", ["fused", "standard"])
@pytest.mark.parametrize(("opset", "batch"), FORMS)
def test_gradients(opset, batch, ops):
    model = network(opset, batch, graph_outputs=("y", "new_mean", "new_var"))
    g = onnxgrad.vjp(model, outputs=["y"], wrt=TRAINED, ops=ops)
    y, mean, var, *found = onnxgrad.session(g).run(None, {"x": X, "y_grad": DY})
    expected = gradients(DY.astype(np.float64))
    for name, value in zip(TRAINED, found, strict=True):
        np.testing.assert_allclose(value, expected[name], atol=2e-5, err_msg=name)
    for value, wanted in zip((y, mean, var), forward()[2][:3], strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("opset", "batch"), FORMS)
def test_trainer(opset, batch, tmp_path):
    trainer = Trainer(network(opset, batch), loss="mse", optimizer="sgd", lr=0.1)
    assert str(trainer.notes[0]) == (
        "'norm' is in training form: what is evaluated and written is in inference form"
    )
    trainer.step(X, DY)
    y, mean, var = forward()[2][:3]
    expected = gradients(2 * (y - DY) / y.size)
    now = trainer.get_weights()
    for name in TRAINED:
        np.testing.assert_allclose(now[name], WEIGHTS[name] - 0.1 * expected[name], atol=1e-5)
    np.testing.assert_allclose(now["mean"], mean, atol=1e-6)
    np.testing.assert_allclose(now["var"], var, rtol=1e-5)
    trainer.save(tmp_path / "tuned.onnx")
    written = onnx.load(tmp_path / "tuned.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert [len(n.output) for n in written.graph.node] == [1, 1]
    kept = {t.name: numpy_helper.to_array(t) for t in written.graph.initializer}
    np.testing.assert_allclose(kept["mean"], mean, atol=1e-6)


@pytest.mark.parametrize(("opset", "batch"), FORMS)
def test_drop_in(opset, batch, tmp_path):
    artifacts.generate_artifacts(
        network(opset, batch), requires_grad=TRAINED, frozen_params=["mean", "var"],
        loss=artifacts.LossType.MSELoss, artifact_directory=tmp_path,
    )  # fmt: skip
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    module = Module(tmp_path / "training_model.onnx", state, tmp_path / "eval_model.onnx")
    module.train()
    module(X, DY)
    y, mean, var = forward()[2][:3]
    expected = gradients(2 * (y - DY) / y.size)
    for name in TRAINED:
        np.testing.assert_allclose(
            state.parameters[name].grad, expected[name], atol=1e-6, err_msg=name
        )
    np.testing.assert_allclose(state.parameters["mean"].data, mean, atol=1e-6)
    np.testing.assert_allclose(state.parameters["var"].data, var, rtol=1e-5)
    module.eval()
    loss = module(X, DY)
    h, w, _ = forward()
    outside = (h - mean) / np.sqrt(var + 1e-3) * w["scale"] + w["shift"]
    np.testing.assert_allclose(loss, ((outside - DY) ** 2).mean(), rtol=1e-4)


def test_statistics_that_are_outputs_stay_outputs(tmp_path):
    trainer = Trainer(
        network(11, "N", graph_outputs=("y", "new_mean")), loss={"y": "mse"}, trainable=["w"]
    )
    trainer.step(X, DY)
    trainer.save(tmp_path / "tuned.onnx")
    mean = onnxgrad.session(tmp_path / "tuned.onnx").run(["new_mean"], {"x": X})[0]
    np.testing.assert_array_equal(mean, WEIGHTS["mean"].astype(np.float32))


def test_saved_statistics_that_are_read_are_refused():
    model = network(11, "N", graph_outputs=("y", "saved_var"))
    with pytest.raises(ValueError, match=r"node 'norm' .* reads its output saved_var"):
        onnxgrad.vjp(model, outputs=["y"], wrt=TRAINED)


def test_one_output_is_inference():
    g = onnxgrad.vjp(network(9, 6, outputs=["y"]), wrt=["b"])
    found = onnxgrad.session(g).run(["b_grad"], {"x": X, "y_grad": DY})[0]
    slope = WEIGHTS["scale"] / np.sqrt(WEIGHTS["var"] + 1e-3)
    np.testing.assert_allclose(found, DY.sum(0) * slope, rtol=1e-4)


def test_in_inference_every_statistic_is_the_running_one():
    """Whoever reads the new or the saved ones gets those of the file; what nobody reads is not made."""
    for read in (FIVE, ["y", "new_var"], ["y", "saved_mean"], ["y"]):
        model = network(9, 6, graph_outputs=read)
        assert to_inference(model) == ["norm"]
        assert [n.op_type for n in model.graph.node] == ["Gemm", "BatchNormalization"] + [
            "Identity"
        ] * (len(read) - 1)
        found = onnxgrad.session(model).run(None, {"x": X})
        h, w, _ = forward()
        y = (h - w["mean"]) / np.sqrt(w["var"] + 1e-3) * w["scale"] + w["shift"]
        known = {
            "y": y,
            "new_mean": w["mean"],
            "new_var": w["var"],
            "saved_mean": w["mean"],
            "saved_var": w["var"],
        }
        for name, value in zip(read, found, strict=True):
            np.testing.assert_allclose(value, known[name], rtol=1e-5, atol=1e-6, err_msg=name)
