"""Small models and datasets that the attacks are made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

NUMBERS = np.arange(6, dtype=np.float32).reshape(3, 2)


def net(body: str = "y = MatMul(x, w)", more: str = "", opset: object = 17) -> onnx.ModelProto:
    """A model from x [N, 3] to y [N, 2] with the weight w [3, 2]."""
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : {opset}, "mine" : 1]>
        net (float[N, 3] x) => (float[N, 2] y)
        <float[3, 2] w = {{1, 2, 3, 4, 5, 6}}, int64[1] one = {{1}}> {{ {body} }} {more}""")


def write(box: Path, model: onnx.ModelProto, name: str = "m.onnx") -> str:
    (box / name).write_bytes(model.SerializeToString())
    return name


def external(tensor: onnx.TensorProto, *entries: tuple[str, object]) -> None:
    """Move the numbers of a tensor to where the entries say."""
    for field in ("raw_data", "float_data"):
        tensor.ClearField(field)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries:
        tensor.external_data.add(key=key, value=str(value))


def dataset(box: Path, name: str = "d.npz") -> str:
    """Twelve rows that fit `net`."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 3)).astype(np.float32)
    np.savez(box / name, x=x, y=(x @ NUMBERS).astype(np.float32))
    return name


def train(box: Path, model: str, data: str = "", output: str = "out.onnx") -> list[str]:
    data = data or dataset(box)
    return ["train", model, "--data", data, "-o", output, "--loss", "mse", "--epochs", "1"]
