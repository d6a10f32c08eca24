"""The real ones: datasets, PyTorch's DataLoader, MLflow, Weights & Biases (offline), Trackio, TensorBoard."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from job.problem import run, write_problem

import onnxgrad
from onnxgrad.sklearn import mlp

pytestmark = pytest.mark.live
X = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
Y = X[:, :3].argmax(1)


def weights_after(*data, **more) -> np.ndarray:
    trainer = onnxgrad.Trainer(mlp(4, 3), loss="cross_entropy", optimizer="sgd", lr=0.1)
    trainer.fit(*data, epochs=2, batch_size=16, **more)
    return trainer.get_weights(flat=True)


def test_a_dataset_of_hugging_face():
    datasets = pytest.importorskip("datasets")
    columns = {"id": list(range(64)), "features": X.tolist(), "label": Y.tolist()}
    made = datasets.Dataset.from_dict(columns).remove_columns("id")
    np.testing.assert_allclose(weights_after(made), weights_after(X, Y), rtol=1e-6)
    named = datasets.Dataset.from_dict({**columns, "x": X.tolist()})
    np.testing.assert_allclose(weights_after(named), weights_after(X, Y), rtol=1e-6)


def test_a_loader_of_pytorch():
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    loader = torch.utils.data.DataLoader(data, batch_size=16)
    plain = weights_after(X, Y, shuffle=False)
    np.testing.assert_array_equal(weights_after(loader), plain)
    rows = [{"x": torch.from_numpy(x), "labels": int(y)} for x, y in zip(X, Y, strict=True)]
    named = torch.utils.data.DataLoader(rows, batch_size=16)
    np.testing.assert_array_equal(weights_after(named), plain)
    leaf = torch.from_numpy(X).requires_grad_()
    np.testing.assert_array_equal(weights_after(leaf, torch.from_numpy(Y), shuffle=False), plain)


@pytest.mark.parametrize("name", ["mlflow", "wandb", "trackio", "tensorboard"])
def test_a_tracker_keeps_the_numbers(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    package = pytest.importorskip("tensorboardX" if name == "tensorboard" else name)
    write_problem()
    arguments = ("train", "model.onnx", "--data", "d.npz", "-o", "t.onnx", "--epochs", 2, "--quiet")
    code, _, _ = run(capsys, *arguments, "--report-to", name)
    assert code == 0
    if name == "mlflow":
        found = package.search_runs(experiment_names=["onnxgrad"], output_format="list")
        assert len(found) == 1
        assert found[0].info.run_name == "model-1"
        assert found[0].data.params["epochs"] == "2"
        assert 0 < found[0].data.metrics["val_accuracy"] <= 1
        assert found[0].info.status == "FINISHED"
    elif name == "wandb":
        kept = list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
        assert len(kept) == 1
        assert b"val_accuracy" in kept[0].read_bytes()
    elif name == "tensorboard":
        events = list((tmp_path / "runs/model-1/tensorboard").glob("events*"))
        assert b"epoch/val_accuracy" in events[0].read_bytes()
    else:
        kept = [p for p in tmp_path.rglob("*") if p.suffix == ".db" and "onnxgrad" in p.name]
        assert kept
    assert onnx.load("t.onnx").graph.node
