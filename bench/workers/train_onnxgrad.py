"""A training step of onnxgrad; see protocol.py."""

import numpy as np
import onnx
from protocol import serve


def prepare(folder, threads):
    import onnxgrad
    from onnxgrad.train.optimizers import AdamW

    data = np.load(f"{folder}/batch.npz")
    model = onnx.load(f"{folder}/model.onnx")
    trainer = onnxgrad.Trainer(
        model, loss="cross_entropy", optimizer=AdamW(lr=1e-4), threads=threads
    )
    x, y = data["x"], data["y"]
    losses = []

    def step():
        losses.append(trainer.step(x, y)["loss"])

    return step, lambda: {"loss": np.array(losses[:3] or [trainer.step(x, y)["loss"]])}


if __name__ == "__main__":
    serve(prepare)
