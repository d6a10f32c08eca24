"""What several processes cost: the sum of gradients beside gloo's in PyTorch, its share of a step, efficiency on paper.

    python bench/communication.py --torch ENV/bin/python [--processes 2] [--output bench/results/communication.json]

Needs mpi4py and mpiexec in this environment, and PyTorch in the other one. All run on this machine, so bytes travel
through its memory: the sums are what a network adds its own time to. Times are the best of many, in turn.

On paper, for n nodes and a network of B bytes a second: a step takes C + S + 2·(n-1)/n·bytes/B + 2·log2(n)·L, with C
the runs of a node and S the sum, both measured here, and L = 20 µs a message. Efficiency is C / that: each node has as
much to compute as one alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

MILLIONS = (1, 5, 25)
ROWS = 256  # of a batch, over all processes
REPEATS = {1: 60, 5: 25, 25: 12}
LATENCY = 20e-6
NODES, GIGABITS = (4, 64), (1, 10, 100)
ROOT = Path(__file__).resolve().parents[1]


# ---- what runs under mpiexec


def sums() -> dict[str, dict[str, float]]:
    """Seconds of our tree and of MPI's Allreduce, by millions of float32."""
    from mpi4py import MPI

    from onnxgrad.data.share import share_of_rank
    from onnxgrad.train.parallel.mpi import MpiCommunicator
    from onnxgrad.train.parallel.tree import TreeSum

    world = MPI.COMM_WORLD
    ours = MpiCommunicator(world)
    found: dict[str, dict[str, float]] = {}
    for millions in MILLIONS:
        flat, total = np.ones(millions * 10**6, np.float32), np.empty(millions * 10**6, np.float32)
        tree, share = TreeSum(ours, world.size), share_of_rank(world.rank, world.size, world.size)
        best = {"tree": np.inf, "allreduce": np.inf}
        for _ in range(REPEATS[millions]):
            tree.add(share.first, flat)
            world.Barrier()
            began = time.perf_counter()
            tree.finish(total)
            best["tree"] = min(best["tree"], time.perf_counter() - began)
            assert total[0] == world.size
            world.Barrier()
            began = time.perf_counter()
            ours.all_reduce(total)
            best["allreduce"] = min(best["allreduce"], time.perf_counter() - began)
        slowest = world.allgather(best)
        found[str(millions)] = {k: max(b[k] for b in slowest) for k in best}
    return found


def network(millions: int):
    """An MLP of about this many parameters."""
    import onnx
    from onnx import helper, numpy_helper

    width, rng = round((millions * 10**6 / 3) ** 0.5), np.random.default_rng(0)
    nodes, tensors, x = [], [], "x"
    for layer in range(3):
        weight = rng.standard_normal((width, width), np.float32) / np.float32(width**0.5)
        tensors.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [x, f"w{layer}"], [f"h{layer}"]))
        nodes.append(helper.make_node("Relu", [f"h{layer}"], [f"a{layer}"]))
        x = f"a{layer}"
    info = helper.make_tensor_value_info
    ends = [info(n, onnx.TensorProto.FLOAT, ["N", width]) for n in ("x", x)]
    graph = helper.make_graph(nodes, "mlp", ends[:1], ends[1:], tensors)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ), width


def steps() -> dict[str, dict[str, float]]:
    """Seconds of a step by part, one thread a process: the runs, the others, the optimizer."""
    from mpi4py import MPI

    import onnxgrad

    world, found = MPI.COMM_WORLD, {}
    for millions in MILLIONS:
        model, width = network(millions)
        x = np.random.default_rng(1).standard_normal((ROWS, width), np.float32)
        for name, fast in (("tree", False), ("allreduce", True)):
            trainer = onnxgrad.Trainer(
                model, "mse", "sgd", 1e-3, threads=1, communicator=world, micro_batches=world.size,
                reproducible=not fast,
            )  # fmt: skip
            best: dict[str, float] = {}
            for _ in range(max(4, REPEATS[millions] // 4)):
                before = dict(trainer.clock.seconds)
                trainer.step(x, x)
                for part, seconds in trainer.clock.seconds.items():
                    spent = seconds - before.get(part, 0.0)
                    best[part] = min(best.get(part, np.inf), spent)
            every = world.allgather(best)
            found.setdefault(str(millions), {})[name] = {
                part: max(b[part] for b in every) for part in best
            }
    return found


GLOO = """
import json, os, sys, time
import torch, torch.distributed as group
torch.set_num_threads(1)
store, rank, size = "file://" + sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
group.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
found = {}
for millions, repeats in json.loads(sys.argv[4]).items():
    flat, best = torch.ones(int(millions) * 10**6), float("inf")
    for _ in range(repeats):
        group.barrier()
        began = time.perf_counter()
        group.all_reduce(flat)
        best = min(best, time.perf_counter() - began)
    slowest = torch.tensor([best], dtype=torch.float64)
    group.all_reduce(slowest, op=group.ReduceOp.MAX)
    found[millions] = float(slowest)
if rank == 0:
    print(json.dumps(found))
"""


def gloo(python: str, processes: int) -> dict[str, float]:
    """Seconds of gloo's all_reduce in PyTorch."""
    with tempfile.TemporaryDirectory() as folder:
        words = [f"{folder}/store", None, str(processes), json.dumps(REPEATS)]
        started = [
            subprocess.Popen(
                [python, "-c", GLOO, *(w if w is not None else str(rank) for w in words)],
                stdout=subprocess.PIPE, text=True, env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
            )
            for rank in range(processes)
        ]  # fmt: skip
        outputs = [process.communicate(timeout=600)[0] for process in started]
    return json.loads(outputs[0].strip().splitlines()[-1])


def under_mpiexec(what: str, processes: int) -> dict:
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    command = [mpiexec, "-n", str(processes), sys.executable, __file__, "--worker", what]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


# ---- the tables


def on_paper(measured: dict) -> list[list[str]]:
    """Efficiency by parameters, nodes and network."""
    rows = []
    for millions in MILLIONS:
        size = 4e6 * millions
        runs = measured["alone"][str(millions)]["tree"]["forward and backward"]
        added = measured["sums"][str(millions)]["tree"]
        for nodes in NODES:
            row = [f"{millions} M", str(nodes), f"{1e3 * runs:.0f} ms"]
            for gigabits in GIGABITS:
                travel = 2 * (nodes - 1) / nodes * size / (gigabits * 1e9 / 8)
                whole = runs + added + travel + 2 * np.log2(nodes) * LATENCY
                row.append(f"{100 * runs / whole:.0f} %")
            rows.append(row)
    return rows


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def tables(measured: dict) -> str:
    parts = []
    for millions in map(str, MILLIONS):
        ours, step = measured["sums"][millions], measured["steps"][millions]
        whole = {k: sum(v.values()) for k, v in step.items()}
        parts.append([
            f"{millions} M", f"{1e3 * ours['tree']:.1f}", f"{1e3 * ours['allreduce']:.1f}",
            f"{1e3 * measured['gloo'][millions]:.1f}", f"{1e3 * whole['tree']:.0f}",
            *(f"{100 * step[k]['other processes'] / whole[k]:.0f} %" for k in ("tree", "allreduce")),
        ])  # fmt: skip
    head = [
        "parameters",
        "tree ms",
        "Allreduce ms",
        "gloo ms",
        "step ms",
        "share, tree",
        "share, Allreduce",
    ]
    paper = ["parameters", "nodes", "runs of a node", *(f"{g} Gbit/s" for g in GIGABITS)]
    return f"{markdown(head, parts)}\n\n{markdown(paper, on_paper(measured))}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--worker", choices=("sums", "steps"))
    parser.add_argument("--torch", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.worker:
        found = {"sums": sums, "steps": steps}[options.worker]()
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank == 0:
            print(json.dumps(found))
        return
    measured = {
        "processes": options.processes,
        "sums": under_mpiexec("sums", options.processes),
        "gloo": gloo(options.torch, options.processes),
        "steps": under_mpiexec("steps", options.processes),
        "alone": under_mpiexec("steps", 1),
    }
    if options.output:
        options.output.write_text(json.dumps(measured, indent=1) + "\n")
    print(tables(measured))


if __name__ == "__main__":
    main()
