"""Artifacts of a small classifier, for the tests of onnxgrad.api."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from dropin.nets import Net
from onnx import TensorProto

from onnxgrad import artifacts
from onnxgrad.api import CheckpointState, Module, Optimizer

WIDE, CLASSES = 9, 5


def classifier(opset: int = 15) -> onnx.ModelProto:
    """input [batch, 9] → fc1, Relu, fc2 → output [batch, 5]"""
    net = Net(11)
    hidden = net.op("Relu", net.linear("fc1", "input", WIDE, 12))
    y = net.linear("fc2", hidden, 12, CLASSES)
    model = net.model({"input": (TensorProto.FLOAT, ["batch", WIDE])}, (y, ["batch", CLASSES]))
    model.opset_import[0].version = opset
    return model


NAMES = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
X = np.random.RandomState(0).standard_normal((6, WIDE)).astype(np.float32)
LABELS = np.array([0, 1, 2, 3, 4, 0])


@dataclass
class Files:
    folder: Path

    def state(self, name: str = "checkpoint") -> CheckpointState:
        return CheckpointState.load_checkpoint(self.folder / name)

    def module(self, state: CheckpointState | None = None, **settings) -> Module:
        path = self.folder / "training_model.onnx"
        return Module(path, state or self.state(), self.folder / "eval_model.onnx", **settings)

    def optimizer(self, module: Module) -> Optimizer:
        return Optimizer(self.folder / "optimizer_model.onnx", module)


def make(folder: Path, model: onnx.ModelProto | None = None, **settings) -> Files:
    given = {
        "requires_grad": NAMES,
        "loss": artifacts.LossType.CrossEntropyLoss,
        "optimizer": artifacts.OptimType.AdamW,
        **settings,
    }
    model = classifier() if model is None else model
    artifacts.generate_artifacts(model, artifact_directory=folder, **given)
    return Files(folder)


def arrays_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}


def reference(
    weights: dict[str, np.ndarray], x: np.ndarray, labels: np.ndarray
) -> tuple[float, dict]:
    """The loss of the classifier and its gradients, in float64 from the maths."""
    w1, b1, w2, b2 = (weights[n].astype(np.float64) for n in NAMES)
    before = x.astype(np.float64) @ w1.T + b1
    hidden = np.maximum(before, 0)
    scores = hidden @ w2.T + b2
    shifted = scores - scores.max(axis=1, keepdims=True)
    p = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(p[rows, labels]).mean()
    d = p.copy()
    d[rows, labels] -= 1
    d /= len(labels)
    back = (d @ w2) * (before > 0)
    gradients = {
        "fc1.weight": back.T @ x, "fc1.bias": back.sum(0),
        "fc2.weight": d.T @ hidden, "fc2.bias": d.sum(0),
    }  # fmt: skip
    return loss, gradients


def gradients(state: CheckpointState) -> dict[str, np.ndarray]:
    return {n: state.parameters[n].grad for n in NAMES}


def steps(module: Module, optimizer: Optimizer, count: int) -> list[float]:
    """Train on the one batch; return the losses."""
    losses = []
    for _ in range(count):
        losses.append(float(module(X, LABELS)))
        optimizer.step()
        module.lazy_reset_grad()
    return losses
