"""A training step of onnxgrad; see protocol.py."""

import numpy as np
import onnx
from protocol import serve, steps_of_trainer


def prepare(folder, threads):
    import onnxgrad
    from onnxgrad.train.optimizers import AdamW

    data = np.load(f"{folder}/batch.npz")
    model = onnx.load(f"{folder}/model.onnx")
    trainer = onnxgrad.Trainer(
        model, loss="cross_entropy", optimizer=AdamW(lr=1e-4), threads=threads
    )
    return steps_of_trainer(trainer, data["x"], data["y"])


if __name__ == "__main__":
    serve(prepare)
