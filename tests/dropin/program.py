"""A program for onnxruntime.training 1.19.2, as its users wrote it; the tests change one word of it and run it.

python program.py <model.onnx> <batches.npz> <folder> <loss> <optimizer> <learning rate> <eval: yes or no>
    [frozen parameter ...]
"""

import os
import sys

import numpy as np
import onnx
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

STEPS = 100


def main(model_path, data_path, folder, loss, optimizer, learning_rate, evaluate, frozen):
    model = onnx.load(model_path)
    artifacts.generate_artifacts(
        model,
        requires_grad=[t.name for t in model.graph.initializer if t.name not in frozen],
        frozen_params=frozen,
        loss=artifacts.LossType[loss],
        optimizer=artifacts.OptimType[optimizer],
        artifact_directory=folder,
    )
    losses = train(folder, np.load(data_path), float(learning_rate), evaluate == "yes")
    np.save(os.path.join(folder, "losses.npy"), losses)


def train(folder, data, learning_rate, evaluate):
    state = CheckpointState.load_checkpoint(os.path.join(folder, "checkpoint"))
    eval_model = os.path.join(folder, "eval_model.onnx") if evaluate else None
    module = Module(os.path.join(folder, "training_model.onnx"), state, eval_model)
    optimizer = Optimizer(os.path.join(folder, "optimizer_model.onnx"), module)
    optimizer.set_learning_rate(learning_rate)
    batches = [(data[f"x{i}"], data[f"y{i}"]) for i in range(len(data.files) // 2)]
    losses = []
    module.train()
    for step in range(STEPS):
        losses.append(module(*batches[step % len(batches)]))
        optimizer.step()
        module.lazy_reset_grad()
        if step + 1 == STEPS // 2:
            state.properties["step"] = step + 1
            half = os.path.join(folder, "checkpoint_half")
            CheckpointState.save_checkpoint(state, half, include_optimizer_state=True)
    CheckpointState.save_checkpoint(state, os.path.join(folder, "checkpoint_end"))
    if evaluate:
        module.eval()
        losses.append(module(*batches[0]))
        module.export_model_for_inferencing(os.path.join(folder, "inference.onnx"), ["output"])
    return np.array(losses, np.float32)


if __name__ == "__main__":
    main(*sys.argv[1:8], sys.argv[8:])
