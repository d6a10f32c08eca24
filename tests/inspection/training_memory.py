"""How much memory training a model takes, in a process of its own: prints a JSON object of bytes.

`python training_memory.py KIND TRAINABLE BATCH` builds a model, or with `--model FILE` trains that one.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def resident(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(key))


def layers(count: int = 6, width: int = 1536) -> tuple[list, dict, list]:
    """Products of large matrices: weights are all that counts."""
    rng = np.random.default_rng(0)
    nodes, tensors, x = [], {}, "x"
    for i in range(count):
        tensors[f"w{i}"] = rng.standard_normal((width, width), dtype=np.float32) / 40
        nodes += [
            helper.make_node("MatMul", [x, f"w{i}"], [f"a{i}"]),
            helper.make_node("Relu", [f"a{i}"], [f"r{i}"]),
        ]
        x = f"r{i}"
    tensors["head"] = rng.standard_normal((width, 10), dtype=np.float32)
    return [*nodes, helper.make_node("MatMul", [x, "head"], ["y"])], tensors, ["N", width]


def pictures(count: int = 8, channels: int = 32, size: int = 64) -> tuple[list, dict, list]:
    """Convolutions of large pictures: forward values are all that counts."""
    rng = np.random.default_rng(0)
    nodes, tensors, x, depth = [], {}, "x", 3
    for i in range(count):
        kernel = rng.standard_normal((channels, depth, 3, 3), dtype=np.float32)
        tensors[f"w{i}"], depth = kernel / 10, channels
        for part in "sbmv":
            tensors[f"{part}{i}"] = 1 + rng.random(channels, dtype=np.float32)
        norm = [f"c{i}", *(f"{part}{i}" for part in "sbmv")]
        nodes += [
            helper.make_node("Conv", [x, f"w{i}"], [f"c{i}"], pads=[1] * 4),
            helper.make_node("BatchNormalization", norm, [f"n{i}"]),
            helper.make_node("Relu", [f"n{i}"], [f"r{i}"]),
        ]
        x = f"r{i}"
    tensors["head"] = rng.standard_normal((channels, 10), dtype=np.float32)
    nodes += [
        helper.make_node("GlobalAveragePool", [x], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "head"], ["y"]),
    ]
    return nodes, tensors, ["N", 3, size, size]


def folded() -> tuple[list, dict, list]:
    """Convolutions of many channels on small pictures: a session keeps them in forms of its own."""
    return pictures(count=8, channels=448, size=12)


def words(count: int = 4, width: int = 384, length: int = 128) -> tuple[list, dict, list]:
    """Layers of attention, of sizes that a run works out: values that a kernel never writes down."""
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("Shape", ["x"], ["n"], end=1)]
    tensors = {
        "heads": np.array([length, 6, width // 6], np.int64),
        "flat": np.array([length, width], np.int64),
        "root": np.float32(8),
        "one": np.ones(width, np.float32),
    }
    for name in ("heads", "flat"):
        nodes.append(helper.make_node("Concat", ["n", name], [f"to_{name}"], axis=0))
    x = "x"
    for i in range(count):
        for part in ("q", "k", "v", "o"):
            drawn = rng.standard_normal((width, width), dtype=np.float32)
            tensors[f"{part}{i}.w"] = drawn / np.float32(width**0.5)
        for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            nodes += [
                helper.make_node("MatMul", [x, f"{part}{i}.w"], [f"{part}{i}"]),
                helper.make_node("Reshape", [f"{part}{i}", "to_heads"], [f"{part}{i}.h"]),
                helper.make_node("Transpose", [f"{part}{i}.h"], [f"{part}{i}.t"], perm=order),
            ]
        nodes += [
            helper.make_node("MatMul", [f"q{i}.t", f"k{i}.t"], [f"s{i}"]),
            helper.make_node("Div", [f"s{i}", "root"], [f"d{i}"]),
            helper.make_node("Softmax", [f"d{i}"], [f"p{i}"], axis=-1),
            helper.make_node("MatMul", [f"p{i}", f"v{i}.t"], [f"a{i}"]),
            helper.make_node("Transpose", [f"a{i}"], [f"a{i}.t"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"a{i}.t", "to_flat"], [f"a{i}.f"]),
            helper.make_node("MatMul", [f"a{i}.f", f"o{i}.w"], [f"o{i}"]),
            helper.make_node("Add", [x, f"o{i}"], [f"r{i}"]),
            helper.make_node("LayerNormalization", [f"r{i}", "one"], [f"l{i}"]),
        ]
        x = f"l{i}"
    tensors["head"] = rng.standard_normal((width, 10), dtype=np.float32)
    nodes += [
        helper.make_node("ReduceMean", [x], ["m"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["m", "head"], ["y"]),
    ]
    return nodes, tensors, ["N", length, width]


def bounded(count: int = 12, width: int = 4096) -> tuple[list, dict, list]:
    """Bounds behind every layer: the way back needs masks, which are to be made when they are used."""
    rng = np.random.default_rng(0)
    nodes, tensors, x = [], {"least": np.full((1, 1), -0.4, np.float32)}, "x"
    for i in range(count):
        tensors[f"w{i}"] = 1 + rng.random(width, dtype=np.float32)
        nodes += [
            helper.make_node("Mul", [x, f"w{i}"], [f"a{i}"]),
            helper.make_node("LeakyRelu", [f"a{i}"], [f"l{i}"], alpha=0.2),
            helper.make_node("Max", [f"l{i}", "least"], [f"r{i}"]),
        ]
        x = f"r{i}"
    tensors["head"] = rng.standard_normal((width, 10), dtype=np.float32)
    return [*nodes, helper.make_node("MatMul", [x, "head"], ["y"])], tensors, ["N", width]


OLD = "layers of opset 13"  # which is converted before it trains
HELD = "layers in constants of opset 13"  # as Paddle's converter writes them
KINDS = {
    "layers": layers,
    "pictures": pictures,
    "folded": folded,
    "words": words,
    "bounded": bounded,
    OLD: layers,
    HELD: layers,
}


def save(kind: str, path: Path) -> None:
    nodes, tensors, shape = KINDS[kind]()
    arrays = [numpy_helper.from_array(a, n) for n, a in tensors.items()]
    if kind == HELD:
        constants = [helper.make_node("Constant", [], [t.name], value=t) for t in arrays]
        nodes, arrays = [*constants, *nodes], []
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
        arrays,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 13 if kind in (OLD, HELD) else 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def measure(path: str, trainable: str, batch: int) -> dict[str, int]:
    """Train three steps; return what was taken at most, and what was foretold."""
    import onnxruntime  # noqa: F401  (its libraries are not the model's)

    import onnxgrad.inspection.report  # noqa: F401
    from onnxgrad import Trainer, inspect

    _, *rest = [d.dim_value for d in onnx.load(path).graph.input[0].type.tensor_type.shape.dim]
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident("VmRSS")
    trainer = Trainer(path, loss="mse", optimizer="adamw", trainable=trainable)
    x = np.zeros((batch, *rest), np.float32)
    for _ in range(3):
        trainer.step(x, np.zeros((batch, 10), np.float32))
    taken = resident("VmHWM") - before
    return {
        "taken": taken,
        "foretold": inspect(path, batch=batch, trainable=trainable).cost.step_bytes,
    }


if __name__ == "__main__":
    if sys.argv[1] == "--model":
        print(json.dumps(measure(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
    else:
        with tempfile.TemporaryDirectory() as folder:
            save(sys.argv[1], Path(folder) / "m.onnx")
            command = [sys.executable, __file__, "--model", f"{folder}/m.onnx", *sys.argv[2:]]
            sys.exit(subprocess.run(command).returncode)
