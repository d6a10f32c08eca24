"""What a run says of its learning rate."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxgrad import Trainer
from onnxgrad.train.schedules import named


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [(named("exponential", factor=0.5), [0.1, 0.05, 0.025]), ("constant", [0.1, 0.1, 0.1])],
)
def test_an_epoch_tells_the_rate_it_was_trained_with(schedule, expected):
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 2] x) => (float[N, 2] y) <float[2, 2] w = {1, 2, 3, 4}> { y = MatMul(x, w) }""")
    x, y = np.ones((8, 2), np.float32), np.zeros(8, np.int64)
    trainer = Trainer(model, loss="cross_entropy", lr=0.1, schedule=schedule)
    history = trainer.fit(x, y, epochs=3, batch_size=4)
    assert [e["lr"] for e in history.epochs] == pytest.approx(expected)
