"""The network of an estimator: made anew where no model is given, trained, kept as an ONNX file in a pickle."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxgrad.errors import ModelError
from onnxgrad.files.paths import read_bytes
from onnxgrad.model.ending import kind_of_scores
from onnxgrad.train.trainer import Trainer

HIDDEN = 32  # units of the network that is made where no model is given


def mlp(
    inputs: int, outputs: int, hidden: tuple[int, ...] = (HIDDEN,), seed: int = 0
) -> onnx.ModelProto:
    """Return a new network: layers of `hidden` units with ReLU between `inputs` and `outputs`.

    Weights are uniform within ±1/√inputs, as PyTorch draws them.
    """
    rng = np.random.default_rng(seed)
    sizes, nodes, tensors, value = (inputs, *hidden, outputs), [], [], "x"
    for number, (wide, high) in enumerate(itertools.pairwise(sizes), 1):
        bound = 1 / np.sqrt(wide)
        for name, shape in ((f"w{number}", (wide, high)), (f"b{number}", (high,))):
            array = rng.uniform(-bound, bound, shape).astype(np.float32)
            tensors.append(onnx.numpy_helper.from_array(array, name))
        last = number == len(sizes) - 1
        made = "y" if last else f"h{number}"
        nodes.append(onnx.helper.make_node("Gemm", [value, f"w{number}", f"b{number}"], [made]))
        value = made
        if not last:
            value = f"a{number}"
            nodes.append(onnx.helper.make_node("Relu", [made], [value]))
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", size])
        for name, size in (("x", inputs), ("y", outputs))
    ]
    graph = onnx.helper.make_graph(nodes, "mlp", ends[:1], ends[1:], tensors)
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )


class Network:
    """A trained model: a Trainer where it was trained here, the bytes of an ONNX file where it was unpickled."""

    def __init__(self, trainer: Trainer, shape: tuple[int, ...], judged: ir.Value):
        self.trainer: Trainer | None = trainer
        self.shape = shape  # of one row, as the model takes it
        self.kind = kind_of_scores(judged)  # "logits", "probabilities" or "logarithms"
        self.name, self.column = judged.name, is_one_column(judged)
        # Of an unpickled one: the file, and what answers for it.
        self._bytes, self._reader = b"", None

    def outputs(self, x: np.ndarray, batch_size: int) -> np.ndarray:
        """The model's judged output for every row."""
        found = self._answering().predict(self.rows(x), batch_size=batch_size)
        return found[self.name] if isinstance(found, dict) else found

    def _answering(self) -> Trainer:
        if self.trainer is not None:
            return self.trainer
        if self._reader is None:
            self._reader = Trainer(self._bytes, loss={self.name: "mse"})
        return self._reader

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Targets as the loss takes them: numbers in a column for an output that is one."""
        return y.reshape(-1, 1).astype(np.float32) if self.column else y

    def rows(self, x: np.ndarray) -> np.ndarray:
        """The rows in the shape that the model takes."""
        return np.ascontiguousarray(x, np.float32).reshape(len(x), *self.shape)

    def to_bytes(self) -> bytes:
        """The model as an ONNX file, its weights inside it."""
        if self.trainer is None:
            return self._bytes
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            self.trainer.save(path)
            return read_bytes(path)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "trainer": None, "_reader": None, "_bytes": self.to_bytes()}


# ---- shapes


def width_of(y: np.ndarray) -> int:
    return 1 if y.ndim == 1 else y.shape[1]


def float_output(model: ir.Model) -> ir.Value:
    for value in model.graph.outputs:
        if value.dtype is None or value.dtype.is_floating_point():
            return value
    raise ModelError("the model has no output of floats that a loss could judge")


def like_output(targets: np.ndarray, judged: ir.Value) -> np.ndarray:
    """Targets in the rank of the output, where that has one column."""
    return targets.reshape(-1, 1) if is_one_column(judged) and targets.ndim == 1 else targets


def is_one_column(judged: ir.Value) -> bool:
    return judged.shape is not None and len(judged.shape) == 2 and judged.shape[1] == 1


def row_shape(model: ir.Model, features: int) -> tuple[int, ...]:
    """The shape of one row: the model's own where its sizes are known and hold as many numbers."""
    inputs = [v for v in model.graph.inputs if v.name not in model.graph.initializers]
    if len(inputs) != 1:
        names = ", ".join(v.name for v in inputs)
        raise ValueError(
            f"the model has {len(inputs)} inputs ({names}), and a row of X is one array"
        )
    shape = inputs[0].shape
    dims = (features,) if shape is None or len(shape) < 2 else tuple(shape)[1:]
    open_dims = [i for i, d in enumerate(dims) if not isinstance(d, int)]
    known = int(np.prod([d for d in dims if isinstance(d, int)], dtype=np.int64))
    if len(open_dims) == 1 and features % known == 0:
        dims = tuple(features // known if i in open_dims else d for i, d in enumerate(dims))
    elif open_dims or known != features:
        raise ValueError(f"a row of X has {features} numbers, and the model takes {list(dims)}")
    return tuple(int(d) for d in dims)
