"""Which of onnxruntime's own kernels share their work out: what bench/work_span.py believes of them, measured. Linux.

    python bench/shared_nodes.py [--only Add Pad]

Every operator of a training step that is not ours runs alone in a session with two threads that do not spin. What the
second one spends is its share of the work; on a busy machine it may come late and find little, so any share that is
not nothing counts. The command fails where `SHARED` of bench/work_span.py says otherwise.
"""

from __future__ import annotations

import argparse
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from work_span import SHARED

REPEATS, ENOUGH = 40, 0.002
_IMAGE, _ROWS = (2, 32, 128, 128), (2048, 512)


@dataclass
class Node:
    """One node: its inputs by shape or as constants, its attributes."""

    op: str
    shapes: tuple
    constants: tuple = ()
    attributes: dict = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


NODES = [
    *(Node(op, (_IMAGE,)) for op in ("Relu", "Sigmoid", "Tanh", "Erf")),
    *(Node(op, (_IMAGE, _IMAGE)) for op in ("Add", "Sub", "Mul", "Div", "Sum")),
    Node("Concat", (_IMAGE, _IMAGE), attributes={"axis": 1}),
    Node("Split", (_IMAGE,), (_ints(16, 16),), {"axis": 1}, 2),
    Node("Slice", (_IMAGE,), (_ints(8), _ints(24), _ints(1))),
    Node("Pad", (_IMAGE,), (_ints(0, 0, 1, 1, 0, 0, 1, 1),)),
    Node("Transpose", (_ROWS,), attributes={"perm": [1, 0]}),
    Node("Transpose", (_IMAGE,), attributes={"perm": [0, 2, 3, 1]}),
    Node("Transpose", ((16, 256, 512),), attributes={"perm": [0, 2, 1]}),
    Node("Transpose", ((16, 128, 8, 64),), attributes={"perm": [0, 2, 1, 3]}),
    Node("Expand", ((2, 32, 1, 1),), (_ints(*_IMAGE),)),
    Node("Gather", (_ROWS,), (np.arange(1024, dtype=np.int64),)),
    Node("Where", (_ROWS, _ROWS), (np.ones(_ROWS, bool),)),
    Node("ReduceSum", (_IMAGE,), (_ints(0, 2, 3),)),
    Node("ReduceMean", (_IMAGE,), attributes={"axes": [2, 3]}),
    Node("Softmax", (_ROWS,)),
    Node("LayerNormalization", (_ROWS, (512,), (512,)), attributes={"axis": -1}),
    Node("SimplifiedLayerNormalization", (_ROWS, (512,)), attributes={"axis": -1}),
    Node("InstanceNormalization", (_IMAGE, (32,), (32,))),
    Node("MatMul", (_ROWS, (512, 512))),
    Node("Gemm", (_ROWS, (512, 512), (512,))),
    Node("Conv", (_IMAGE, (32, 32, 1, 1))),
    Node("ConvTranspose", (_IMAGE, (32, 16, 2, 2)), attributes={"strides": [2, 2]}),
    Node("MaxPool", (_IMAGE,), attributes={"kernel_shape": [2, 2], "strides": [2, 2]}),
    Node("AveragePool", (_IMAGE,), attributes={"kernel_shape": [2, 2], "strides": [2, 2]}),
    Node("GlobalAveragePool", (_IMAGE,)),
]


def model_of(node: Node) -> onnx.ModelProto:
    make, number = onnx.helper, onnx.TensorProto.FLOAT
    names = [f"i{k}" for k in range(len(node.shapes))]
    fixed = [f"c{k}" for k in range(len(node.constants))]
    read = [*fixed, *names] if node.op == "Where" else [*names, *fixed]
    results = [f"o{k}" for k in range(node.outputs)]
    made = make.make_node(node.op, read, results, domain=node.domain, **node.attributes)
    graph = make.make_graph(
        [made], "one",
        [make.make_tensor_value_info(n, number, s) for n, s in zip(names, node.shapes, strict=True)],
        [make.make_tensor_value_info(n, number, None) for n in results],
        [onnx.numpy_helper.from_array(a, n) for n, a in zip(fixed, node.constants, strict=True)],
    )  # fmt: skip
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)


def spent() -> dict[str, int]:
    """Nanoseconds on a processor, by thread of this process."""
    tasks = Path("/proc/self/task").iterdir()
    return {t.name: int((t / "schedstat").read_text().split()[0]) for t in tasks}


def share(node: Node) -> float:
    """What threads other than the caller's spend, of all."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model_of(node).SerializeToString(), options)
    rng = np.random.default_rng(0)
    feeds = {f"i{k}": rng.standard_normal(s).astype(np.float32) for k, s in enumerate(node.shapes)}
    session.run(None, feeds)
    before = spent()
    for _ in range(REPEATS):
        session.run(None, feeds)
    used = {thread: ns - before.get(thread, 0) for thread, ns in spent().items()}
    own = used.pop(str(threading.get_native_id()))
    others = sum(used.values())
    return others / (others + own)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    wrong = 0
    for node in NODES:
        if arguments.only and node.op not in arguments.only:
            continue
        found, believed = share(node), node.op in SHARED
        right = (found >= ENOUGH) == believed
        wrong += not right
        more = f" {node.attributes['perm']}" if "perm" in node.attributes else ""
        text = "" if right else "  work_span.py says otherwise"
        print(f"{node.op + more:34} second thread {found:6.1%}{text}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
