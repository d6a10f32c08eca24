"""Windows that are larger than the picture: onnx's inference of shapes would end the process."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxgrad import Trainer, inspect
from onnxgrad.graph import load

SLICED = {
    "behind a convolution": "c = Conv(x, w)  y = Slice(c, zero, two, axis)",
    "behind a pool": "c = MaxPool<kernel_shape = [7, 7]>(x)  y = Slice(c, zero, two, axis)",
    "behind a negative pad": "c = Pad(x, cut)  d = Relu(c)  y = Slice(d, zero, two, axis)",
    "behind another slice": "s = Slice(x, zero, two, axis)  c = Conv(s, w)  y = Slice(c, zero, two, axis)",
}


def model(body: str, size: str) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 1, {size}, {size}] x) => (float[N, 1, A, B] y) {{ {body} }}""")
    tensors = {
        "w": np.random.default_rng(0).normal(size=(1, 1, 7, 7)).astype("f4"),
        "zero": np.array([0]),
        "two": np.array([2]),
        "axis": np.array([2]),
        "cut": np.array([0, 0, -4, -4, 0, 0, 0, 0]),
    }
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in tensors.items())
    return made


@pytest.mark.parametrize("body", SLICED.values(), ids=SLICED)
@pytest.mark.parametrize("size", ["3", "H"])
def test_inspect_answers(body, size):
    """A file that states such sizes, and one that leaves them open, for which `inspect` assumes 1."""
    found = inspect(model(body, size))
    assert found.outputs[0].name == "y"


def test_sizes_that_fit_are_known_behind_every_slice():
    body = (
        "c = Conv(x, w)  s = Slice(c, zero, two, axis)  p = MaxPool<kernel_shape = [2, 2]>(s)"
        "  y = Slice(p, zero, two, axis)"
    )
    shapes = {v.name: list(v.shape) for n in load(model(body, "9")).graph for v in n.outputs}
    assert [shapes[n][1:] for n in "cspy"] == [[1, 3, 3], [1, 2, 3], [1, 1, 2], [1, 1, 2]]


def test_what_is_left_open_trains():
    made = model("c = Conv(x, w)  y = Slice(c, zero, two, axis)", "H")
    trainer = Trainer(made, loss="mse", optimizer="sgd", lr=1e-3)
    x, target = np.ones((2, 1, 9, 9), "f4"), np.ones((2, 1, 2, 3), "f4")
    losses = [trainer.step(x, target)["loss"] for _ in range(3)]
    assert losses[-1] < losses[0]
