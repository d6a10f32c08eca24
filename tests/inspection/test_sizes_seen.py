"""Sizes that detectors compute from other tensors: `inspect` blames no Shape for weights that the Trainer trains."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxgrad import Trainer, inspect

# How large the picture is made: a float tensor, or sizes of another feature map, through floats and back.
SIZES = {
    "a factor": "s = Shape(c) f = Cast <to = 1> (s) k = Mul(f, twice) i = Cast <to = 7> (k) "
                "y = Resize <mode = \"nearest\"> (c, , , i)",
    "another map": "e = Conv <strides = [2, 2]> (c, narrow) s = Shape(e) f = Cast <to = 1> (s) t = Shape(c) "
                   "g = Cast <to = 1> (t) k = Div(f, g) y = Resize <mode = \"nearest\"> (c, , k)",
}  # fmt: skip


@pytest.mark.parametrize("title", SIZES)
def test_weights_before_a_computed_size_are_trainable(title):
    """They were "not trainable: the gradient cannot pass Shape", as those of YOLO and PP-OCR, and trained."""
    made = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 3, H, W] x) => (float[N, 2, A, B] y) {{ c = Conv(x, weight) {SIZES[title]} }}""")
    rng = np.random.default_rng(0)
    tensors = {"weight": rng.normal(size=(2, 3, 1, 1)), "narrow": rng.normal(size=(2, 2, 1, 1)),
               "twice": np.array([1, 1, 2, 2])}  # fmt: skip
    made.graph.initializer.extend(
        numpy_helper.from_array(a.astype(np.float32), n) for n, a in tensors.items()
    )
    report = inspect(made)
    assert report.trainable
    assert [p.name for p in report.parameters if p.trainable] == ["weight"]
    trainer = Trainer(made, loss="mse", optimizer="sgd")
    assert list(trainer.get_weights()) == ["weight"]
    x = rng.normal(size=(2, 3, 4, 4)).astype(np.float32)
    size = 8 if title == "a factor" else 2
    assert np.isfinite(trainer.step(x, np.zeros((2, 2, size, size), np.float32))["loss"])
