"""Where the time of one training step goes: every node of the training graph, and what is not in a node.

    python bench/profiled.py model.onnx batch.npz [--peak 118] [--nodes 10]

Runs on one thread. The time of a node is its least of several steps. `--peak` (GFLOP/s of fused multiply-adds, which
bench/products.py prints) adds the share of it that linear layers reach.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

STEPS, FIRST = 8, 2  # the first ones allocate
MOST, SECONDS = 40, 1.5  # of short steps


@dataclass
class Node:
    op: str
    name: str
    us: float
    shapes: list[list[int]]
    results: list[list[int]]

    def flops(self) -> float:
        """Operations of a linear layer; 0 of anything else."""
        if self.op == "LinearTraining":
            (*rows, depth), (_, columns) = self.shapes[:2]
            return 2.0 * math.prod(rows) * depth * columns
        if self.op == "LinearGrad":  # dX, dW or both; dB is a sum
            (*rows, columns), (*_, depth) = self.shapes[:2]
            products = sum(len(shape) > 1 for shape in self.results)
            return 2.0 * products * math.prod(rows) * depth * columns
        return 0.0


@dataclass
class Profile:
    """Nodes, and what a whole step and parts of it take, in µs: the least of several steps."""

    nodes: list[Node]
    step: float
    optimizer: float
    between: float  # in onnxruntime from node to node, and in Python


def turns(steps: int | None = None) -> Iterator[int]:
    """So many steps; without a number several, and more where they are short: other work of the machine hits most."""
    begun = time.perf_counter()
    for turn in itertools.count():
        if turn >= (steps or STEPS) and (
            steps or turn >= MOST or time.perf_counter() > begun + SECONDS
        ):
            return
        yield turn


def profile(
    model: str, batch: str, loss: str = "cross_entropy", steps: int | None = None
) -> Profile:
    """Train for some steps on one thread, with onnxruntime's own profiler switched on."""
    import numpy as np
    import onnx

    import onnxgrad
    from onnxgrad.train.step import bound_session, training_step

    plain_options, plain_session, sessions = (
        training_step.session_options,
        bound_session.session,
        [],
    )

    def options(threads):
        found = plain_options(threads)
        found.enable_profiling, found.profile_file_prefix = True, f"{folder}/run"
        return found

    def session(*arguments):
        sessions.append(plain_session(*arguments))
        return sessions[-1]

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(training_step, "session_options", options),
        mock.patch.object(bound_session, "session", session),
    ):
        with np.load(batch) as data:
            x, y = data["x"], data["y"]
        whole, optimizer, python = [], [], []
        trainer = onnxgrad.Trainer(onnx.load(model), loss=loss, threads=1)
        for _ in turns(steps):
            before, begin = dict(trainer.clock.seconds), time.process_time()
            wall = time.perf_counter()
            trainer.step(x, y)
            wall = time.perf_counter() - wall
            whole.append(time.process_time() - begin)
            parts = {k: v - before.get(k, 0.0) for k, v in trainer.clock.seconds.items()}
            optimizer.append(parts["optimizer"])
            python.append(wall - parts["optimizer"] - parts["forward and backward"])
        events = json.loads(Path(sessions[-1].end_profiling()).read_text())
    nodes = _nodes(events)
    between = len(nodes) * node_cost() + min(python) * 1e6
    return Profile(nodes, min(whole) * 1e6, min(optimizer) * 1e6, between)


def node_cost(count: int = 400, repeats: int = 30) -> float:
    """µs that onnxruntime takes from node to node: a chain of nodes on one number, without a profiler."""
    import numpy as np
    import onnx
    import onnxruntime

    make = onnx.helper
    nodes = [
        make.make_node("Neg" if i % 2 else "Abs", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)
    ]
    ends = [make.make_tensor_value_info(f"v{i}", onnx.TensorProto.FLOAT, [1]) for i in (0, count)]
    graph = make.make_graph(nodes, "chain", ends[:1], ends[1:])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    feeds, least = {"v0": np.ones(1, np.float32)}, math.inf
    for _ in range(repeats):
        begin = time.perf_counter()
        session.run(None, feeds)
        least = min(least, time.perf_counter() - begin)
    return least / count * 1e6


def _nodes(events: list[dict]) -> list[Node]:
    times, seen = defaultdict(list), {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            times[event["name"]].append(event["dur"])
            seen[event["name"]] = event["args"]
    return [
        Node(args["op_name"], name.removesuffix("_kernel_time"), min(times[name][FIRST:]),
             _shapes(args, "input_type_shape"), _shapes(args, "output_type_shape"))
        for name, args in seen.items()
    ]  # fmt: skip


def _shapes(args: dict, which: str) -> list[list[int]]:
    return [next(iter(shape.values())) for shape in args.get(which, ())]


def show(found: Profile, peak: float | None, worst: int) -> None:
    spent, flops, count = defaultdict(float), defaultdict(float), defaultdict(int)
    for node in found.nodes:
        spent[node.op] += node.us
        flops[node.op] += node.flops()
        count[node.op] += 1
    nodes = sum(spent.values())
    print(
        f"one step: {found.step / 1e3:.1f} ms of processor time; {len(found.nodes)} nodes {nodes / 1e3:.1f} ms, "
        f"optimizer {found.optimizer / 1e3:.1f} ms, between nodes and in Python {found.between / 1e3:.1f} ms"
    )
    for op, us in sorted(spent.items(), key=lambda item: -item[1]):
        speed = flops[op] / us / 1e3
        share = f", {speed / peak:.0%} of the peak" if peak and speed else ""
        text = f"{speed:8.1f} GFLOP/s{share}" if speed else ""
        print(f"  {op:38} × {count[op]:3} {us / 1e3:9.2f} ms {us / nodes:6.1%} {text}")
    for node in sorted(found.nodes, key=lambda n: -n.us)[:worst]:
        print(f"  {node.us:9.0f} µs {node.op} {node.shapes}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("batch")
    parser.add_argument("--loss", default="cross_entropy")
    parser.add_argument("--peak", type=float)
    parser.add_argument("--nodes", type=int, default=0, help="also the slowest nodes")
    arguments = parser.parse_args()
    found = profile(arguments.model, arguments.batch, arguments.loss)
    show(found, arguments.peak, arguments.nodes)


if __name__ == "__main__":
    main()
