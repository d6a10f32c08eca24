"""What the stories share: small models as files, the command line, and the written model in a plain session."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from onnxgrad.cli import main


def mlp(path: str, widths: list[int], seed: int = 0, batch: str | int = "N", end: str = "") -> None:
    """Write a network of Gemm and Relu; `end` is an operator behind the last layer, such as Softmax."""
    rng = np.random.default_rng(seed)
    nodes, tensors, value = [], [], "x"
    for number, (wide, next_wide) in enumerate(itertools.pairwise(widths)):
        weight = rng.normal(0, np.sqrt(2 / wide), (wide, next_wide)).astype(np.float32)
        tensors += [
            onnx.numpy_helper.from_array(weight, f"w{number}"),
            onnx.numpy_helper.from_array(np.zeros(next_wide, np.float32), f"b{number}"),
        ]
        last = number == len(widths) - 2
        made = "y" if last and not end else f"h{number}"
        nodes.append(onnx.helper.make_node("Gemm", [value, f"w{number}", f"b{number}"], [made]))
        value = made
        if not last:
            value = f"a{number}"
            nodes.append(onnx.helper.make_node("Relu", [made], [value]))
    if end:
        nodes.append(onnx.helper.make_node(end, [value], ["y"]))
    save(path, nodes, {"x": [batch, widths[0]]}, {"y": [batch, widths[-1]]}, tensors)


def save(
    path: str, nodes, inputs: dict, outputs: dict, tensors, whole: tuple[str, ...] = ()
) -> None:
    """Write a model; its inputs and outputs are floats, but those of `whole` numbers. Tensors may be arrays by name."""
    if isinstance(tensors, dict):
        tensors = [onnx.numpy_helper.from_array(a, n) for n, a in tensors.items()]
    kinds = {True: onnx.TensorProto.INT64, False: onnx.TensorProto.FLOAT}
    info = lambda n, s: onnx.helper.make_tensor_value_info(n, kinds[n in whole], s)  # noqa: E731
    graph = onnx.helper.make_graph(
        nodes, "story", [info(*i) for i in inputs.items()], [info(*o) for o in outputs.items()], tensors
    )  # fmt: skip
    model = onnx.helper.make_model(
        graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]
    )
    onnx.checker.check_model(model)
    onnx.save(model, path)


def onnxgrad(line: str) -> None:
    """Type a line; it must work."""
    assert main(line.split()) == 0


def ask(path: str, **inputs: np.ndarray) -> list[np.ndarray]:
    """Run a written model in a plain session, as production would."""
    options = onnxruntime.SessionOptions()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def write_csv(path: str | Path, rows: list[dict]) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
