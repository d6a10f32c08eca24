"""Loss curves of small networks: PyTorch's in double, and ours from what its exporters write."""

from __future__ import annotations

import numpy as np

STEPS = 20
BATCHES = 4
# The rates are those of the networks' own papers, or nearly; the seed is that of weights and data.
OPTIMIZERS = {
    "sgd": {"lr": 0.02, "momentum": 0.9},
    "adamw": {"lr": 1e-3, "weight_decay": 0.01},
}


def batches(inputs, classes: int, target: tuple, seed: int) -> list[tuple[list, np.ndarray]]:
    """Return the batches of a network: arrays for each input, and the classes."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(BATCHES):
        arrays = []
        for shape, limit in inputs:
            array = rng.normal(size=shape) if limit is None else rng.integers(0, limit, shape)
            arrays.append(array.astype(np.float32 if limit is None else np.int64))
        if len(arrays) > 1:
            arrays[1][:, 0] = 1  # a mask that leaves something
        size = (inputs[0][0][0], *target)
        found.append((arrays, rng.integers(0, classes, size)))
    return found


def trained(model: bytes, optimizer: str, data: list, axis: int) -> np.ndarray:
    """Return the losses of onnxgrad's steps on an exported model."""
    from onnxgrad import Trainer
    from onnxgrad.train import losses, optimizers

    settings = OPTIMIZERS[optimizer]
    kind = optimizers.SGD if optimizer == "sgd" else optimizers.AdamW
    loss = losses.CrossEntropy(axis=axis)
    trainer = Trainer(model, loss=loss, optimizer=kind(**settings))
    found = []
    for step in range(STEPS):
        arrays, labels = data[step % BATCHES]
        batch = dict(zip(trainer.input_names, arrays, strict=True))
        found.append(trainer.step({**batch, trainer.target_names[0]: labels})["loss"])
    return np.array(found)
