"""Does an installed onnxgrad work? One kernel, one session, one step of training, in a second.

`python tools/smoke.py`: run with every wheel after it is built, on the system that it is for. It needs nothing of the
repository, so that what is installed is what is tried.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

import onnxgrad
from onnxgrad.demo import models


def kernel() -> None:
    dx = onnxgrad.kernels.relu_grad(np.float32([1, 2]), np.float32([-1, 1]))
    assert dx.tolist() == [0, 2], dx


def step(folder: Path) -> float:
    """The loss falls; the tuned file runs in a session that does not know onnxgrad."""
    draw = np.random.default_rng(0)
    x, y = draw.random((64, 1, 8, 8), np.float32), draw.integers(0, 10, 64)
    trainer = onnxgrad.Trainer(models.cnn(), loss="cross_entropy", lr=1e-2)
    losses = [trainer.step(x, y)["loss"] for _ in range(8)]
    assert losses[-1] < losses[0], losses
    trainer.save(folder / "tuned.onnx")
    session = onnxruntime.InferenceSession(folder / "tuned.onnx")
    (out,) = session.run(None, {session.get_inputs()[0].name: x})
    assert out.shape == (64, 10), out.shape
    return losses[-1]


def main() -> None:
    kernel()
    with tempfile.TemporaryDirectory() as folder:
        loss = step(Path(folder))
    print(
        f"onnxgrad {onnxgrad.__version__} works: Python {platform.python_version()}, "
        f"onnxruntime {onnxruntime.__version__}, NumPy {np.__version__}, {sys.platform} {platform.machine()}; "
        f"loss after 8 steps {loss:.4f}"
    )


if __name__ == "__main__":
    main()
