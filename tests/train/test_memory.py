"""A long run needs no more memory than a short one."""

from __future__ import annotations

import os

import numpy as np
import onnx
from train import problems

from onnxgrad import Trainer

STEPS = int(os.environ.get("ONNXGRAD_STEPS", "400"))


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_resident_memory_does_not_grow():
    """Batches of changing sizes, evaluation and prediction in between."""
    problem = problems.cnn()
    trainer = Trainer(problem.model(), loss="cross_entropy", metrics="accuracy", dropout=0.1)
    x, y = (np.concatenate(p) for p in zip(*problem.batches[:4], strict=True))

    def run(steps: int) -> None:
        for step in range(steps):
            size = 16 + step % 3
            trainer.step(x[:size], y[:size])
            if step % 50 == 0:
                trainer.evaluate(x, y)
                trainer.predict(x[:8])

    run(150)  # pools and arenas are full now
    before = resident()
    run(STEPS)
    growth = (resident() - before) / before
    assert growth < 0.01, f"{growth:.2%} in {STEPS} steps"


def test_parameters_stay_where_they_are():
    """The step updates the memory that the sessions read: nothing is copied or bound again."""
    problem = problems.mlp()
    trainer = Trainer(problem.model(), loss="cross_entropy")
    places = {n: a.ctypes.data for n, a in trainer.store.tensors().items()}
    gradient = trainer.store.gradient("w1")
    trainer.step(*problem.batches[0])
    assert gradient.any()
    assert {n: a.ctypes.data for n, a in trainer.store.tensors().items()} == places
    assert all(place % 64 == 0 for place in places.values())


def test_a_large_tensor_that_nothing_uses_is_left_out():
    """onnxruntime cannot be lent a tensor that it has dropped; a mask that a pattern replaced is one."""
    problem = problems.mlp()
    model = problem.model()
    idle = np.ones((256, 256), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(idle, "idle"))
    with_it = Trainer(model, loss="cross_entropy", trainable=["w1"]).step(*problem.batches[0])
    without = Trainer(problem.model(), loss="cross_entropy", trainable=["w1"])
    assert with_it == without.step(*problem.batches[0])
