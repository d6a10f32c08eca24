"""A training step of onnxruntime-training 1.19.2; see protocol.py. Runs in the old package's environment."""

import importlib.machinery
import json
import sys
from pathlib import Path
from unittest.mock import MagicMock

try:
    import torch  # noqa: F401
except ImportError:  # the package imports it for parts that are not used here
    for name in ("", ".nn", ".onnx", ".utils", ".utils.dlpack", ".utils.cpp_extension"):
        stub = sys.modules[f"torch{name}"] = MagicMock()
        stub.__spec__ = importlib.machinery.ModuleSpec(f"torch{name}", None)

import numpy as np
import onnx
from onnxruntime import SessionOptions
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer
from protocol import serve


def prepare(folder, threads):
    line = json.loads(Path(folder, "line.json").read_text())
    data = np.load(f"{folder}/batch.npz")
    model = onnx.load(f"{folder}/model.onnx")
    artifacts.generate_artifacts(
        model, requires_grad=line["trained"], loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.AdamW, artifact_directory=folder,
    )  # fmt: skip
    options = SessionOptions()
    options.intra_op_num_threads = threads
    state = CheckpointState.load_checkpoint(f"{folder}/checkpoint")
    paths = [f"{folder}/{kind}_model.onnx" for kind in ("training", "eval", "optimizer")]
    module = Module(paths[0], state, paths[1], session_options=options)
    optimizer = Optimizer(paths[2], module)
    optimizer.set_learning_rate(1e-4)
    x, y = data["x"], data["y"]
    module.train()
    losses = []

    def step():
        losses.append(float(module(x, y)))
        optimizer.step()
        module.lazy_reset_grad()

    return step, lambda: {"loss": np.array(losses[:3])}


if __name__ == "__main__":
    serve(prepare)
