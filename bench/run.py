"""Run the benchmark table: ours through both hosts, PyTorch, onnxruntime-training 1.19.2, stock onnxruntime where it
has the operator, and the machine's limits, alternated in one run. `make bench`, or
`.venv/bin/python bench/run.py [--only ReluGrad] [--seconds 4] [--threads 1 2]`.

Each contender is a process in its own environment that waits while the others run. They take turns in rounds; the
ratio is the fastest peer's best time of a round over ours, the median of the rounds. A ratio below 1 is a loss, and is
shown. Results are checked against each other first.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from lines import BENCHES, ROOT, Bench
from rich.console import Console
from rich.table import Table
from worker import Worker

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "golden")]

from ort_models import node_model  # noqa: E402
from record import old_python  # noqa: E402

from onnxgrad import _native  # noqa: E402
from onnxgrad.contracts import contracts  # noqa: E402

OURS = ("onnxgrad in onnxruntime", "onnxgrad on NumPy")
TORCH, OLD = "PyTorch", "onnxruntime-training"
# Stock onnxruntime packs constant weights when it loads a model; those of a training graph are inputs.
STOCK, STOCK_CONSTANT = "onnxruntime", "onnxruntime, constant weights"
PEERS = (TORCH, OLD, STOCK, STOCK_CONSTANT)
ROUNDS = 9


class Limits:
    """The machine's own limits, from bench/limits.cpp."""

    def __init__(self):
        program = ROOT / "build" / "limits"
        program.parent.mkdir(exist_ok=True)
        compiler = os.environ.get("CXX", "c++")
        subprocess.run(
            [
                compiler,
                "-O2",
                "-std=c++17",
                "-pthread",
                ROOT / "bench" / "limits.cpp",
                "-o",
                program,
            ],
            check=True,
        )
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *words) -> float:
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def torch_python() -> Path:
    """The interpreter of PyTorch's environment; made when it is missing."""
    environment = ROOT / ".envs" / "torch"
    python = environment / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-qq", "torch==2.13.0", "numpy"], check=True
        )
    return python


def start_workers() -> dict[str, Worker]:
    return {
        OURS[0]: Worker(sys.executable, "onnxruntime_host.py", "--onnxgrad"),
        OURS[1]: Worker(sys.executable, "numpy_host.py"),
        TORCH: Worker(torch_python(), "pytorch.py"),
        OLD: Worker(old_python(), "onnxruntime_host.py"),
        STOCK: Worker(sys.executable, "onnxruntime_host.py", "stock.onnx"),
        STOCK_CONSTANT: Worker(sys.executable, "onnxruntime_host.py", "stock_constant.onnx"),
    }


def write_line(line: Bench, folder: Path) -> dict[str, np.ndarray]:
    """The model, the inputs and the description that the workers read."""
    contract = contracts()[line.op]
    rng = np.random.default_rng(0)
    types = {t.name: t.type for t in contract.inputs}
    inputs = {k: np.asarray(s(rng)) for k, s in line.inputs.items()}
    inputs = {k: v.astype(np.float32) if types[k] == "T" else v for k, v in inputs.items()}
    inputs.update(line.derive(inputs) if line.derive else {})
    wanted = line.outputs or tuple(t.name for t in contract.outputs)
    (folder / "model.onnx").write_bytes(
        node_model(contract, inputs, line.attributes, wanted).SerializeToString()
    )
    if line.stock:
        write_stock_models(line, inputs, folder)
    np.savez(folder / "inputs.npz", **inputs)
    description = dict(
        op=line.op,
        torch=line.torch,
        attributes=dict(line.attributes),
        outputs=list(wanted),
        torch_setup=line.torch_setup,
    )
    (folder / "line.json").write_text(json.dumps(description))
    return inputs


def write_stock_models(line: Bench, inputs: dict[str, np.ndarray], folder: Path) -> None:
    """The standard operator, with its weights as inputs and as constants. Outputs have our names, in the same order."""
    schema = onnx.defs.get_schema(line.stock, 21)
    specs = contracts()[line.op].outputs[: schema.max_output]
    outputs = [t.name for t in specs]
    node = onnx.helper.make_node(line.stock, list(inputs), outputs, **line.attributes)
    values = {k: onnx.helper.make_tensor_value_info(k, 1, v.shape) for k, v in inputs.items()}
    kinds = {"T": onnx.TensorProto.FLOAT, "int64": onnx.TensorProto.INT64}
    results = [onnx.helper.make_tensor_value_info(t.name, kinds[t.type], None) for t in specs]
    for name, fed in (("stock", list(inputs)), ("stock_constant", ["X"])):
        constants = [onnx.numpy_helper.from_array(inputs[k], k) for k in inputs if k not in fed]
        graph = onnx.helper.make_graph(
            [node], "stock", [values[k] for k in fed], results, constants
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
        model.ir_version = 10
        onnx.save(model, folder / f"{name}.onnx")


def agree(results: dict[str, dict[str, np.ndarray]]) -> list[str]:
    """The contenders whose numbers differ from ours by more than 1e-4 of the largest."""
    ours = results[OURS[0]]
    wrong = []
    for name, theirs in results.items():
        for key, array in ours.items():
            if key not in theirs or array.size == 0:
                continue
            difference = np.abs(array - theirs[key].reshape(array.shape)).max()
            if not difference <= 1e-4 * max(np.abs(array).max(), 1e-30):
                wrong.append(name)
                break
    return wrong


def run_line(
    line: Bench, threads: int, seconds: float, workers: dict[str, Worker], limits: Limits
) -> dict:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = write_line(line, folder)
        ready = [
            w
            for w in workers
            if w not in line.without
            and (line.stock or w not in (STOCK, STOCK_CONSTANT))
            and "error" not in workers[w].ask(prepare=name, threads=threads)
        ]
        results = {}
        for who in ready:
            workers[who].ask(result=str(folder / "out.npz"))
            results[who] = dict(np.load(folder / "out.npz"))
        largest = max(a.size for a in (*inputs.values(), *results[OURS[0]].values()))
        rounds: list[dict[str, list[float]]] = []
        limit = []
        for _ in range(ROUNDS):
            share = seconds / ROUNDS / len(ready)
            rounds.append({who: workers[who].times(share) for who in ready})
            if line.share == "stream":
                limit.append(limits.ask("stream", largest, threads, seconds / ROUNDS / 5))
            elif line.share == "fma":
                limit.append(limits.ask("fma", threads, seconds / ROUNDS / 5))
    return summarise(line, threads, rounds, limit, agree(results))


def summarise(line: Bench, threads: int, rounds, limit, wrong) -> dict:
    """The ratio is the median of the rounds' ratios: the memory of a shared machine is quicker for some seconds and
    slower for others, and within a round all contenders meet the same."""
    times = {who: [t for r in rounds for t in r[who]] for who in rounds[0]}
    best = {who: min(t) for who, t in times.items()}
    us = OURS[1] if line.share is None else OURS[0]
    ours, peers = best[us], [p for p in PEERS if p in best]
    row = dict(op=line.op, title=line.title, threads=threads, target=line.target)
    row["milliseconds"] = {w: round(b * 1e3, 5) for w, b in best.items()}
    row["median milliseconds"] = {w: round(float(np.median(t)) * 1e3, 5) for w, t in times.items()}
    row["samples"] = {w: len(t) for w, t in times.items()}
    ratios = [min(min(r[p]) for p in peers) / min(r[us]) for r in rounds if peers]
    row["ratio"] = round(float(np.median(ratios)), 3) if ratios else None
    row["ratios of rounds"] = [round(r, 2) for r in sorted(ratios)]
    row["fastest peer"] = min(peers, key=best.get) if peers else None
    row["disagree"] = wrong
    if line.share == "stream":
        passes = [min(r[us]) / stream for r, stream in zip(rounds, limit, strict=True)]
        row["limit"] = {
            "stream milliseconds": round(min(limit) * 1e3, 5),
            "ours/limit": round(float(np.median(passes)), 3),
        }
        if peers:
            passes = [
                min(min(r[p]) for p in peers) / stream
                for r, stream in zip(rounds, limit, strict=True)
            ]
            row["limit"]["peer/limit"] = round(float(np.median(passes)), 3)
    elif line.share == "fma":
        row["limit"] = {"fma GFLOP/s": max(limit), "ours GFLOP/s": round(line.flops / ours / 1e9, 1),
                        "share": round(line.flops / ours / 1e9 / max(limit), 3)}  # fmt: skip
    return row


def limit_text(row: dict) -> str:
    limit = row.get("limit", {})
    if "ours/limit" in limit:
        peer = f" (peer {limit['peer/limit']:.2f}×)" if "peer/limit" in limit else ""
        return f"{limit['ours/limit']:.2f}× stream{peer}"
    return f"{limit['share']:.0%} of FMA peak" if "share" in limit else ""


def time_text(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "–"
    return f"{milliseconds * 1e3:.2f} µs" if milliseconds < 0.1 else f"{milliseconds:.2f} ms"


def new_table() -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator")
    table.add_column("shape")
    for title in (
        "thr.",
        "in ORT",
        "NumPy",
        "PyTorch",
        "ORT-T 1.19",
        "stock ORT",
        "ratio",
        "limit",
    ):
        table.add_column(title, justify="right")
    return table


def add_row(table: Table, row: dict) -> None:
    ms, ratio = row["milliseconds"], row["ratio"]
    colour = (
        ""
        if ratio is None
        else "green"
        if ratio >= (row["target"] or 1)
        else "yellow"
        if ratio >= 1
        else "red"
    )
    text = "–" if ratio is None else f"[{colour}]{ratio:.2f}×[/]"
    if row["disagree"]:
        text += " [red]differs: " + ", ".join(row["disagree"]) + "[/]"
    table.add_row(row["op"], row["title"], str(row["threads"]),
                  *(time_text(ms.get(w)) for w in (*OURS, TORCH, OLD)),
                  time_text(min((ms[w] for w in (STOCK, STOCK_CONSTANT) if w in ms), default=None)),
                  text, limit_text(row))  # fmt: skip


def environment() -> dict:
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            x.split(":")[1].strip()
            for x in cpuinfo.read_text().splitlines()
            if x.startswith("model name")
        ]
        model = names[0] if names else ""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT
    ).stdout.strip()
    import onnxruntime

    return dict(
        date=datetime.date.today().isoformat(), processor=model, cores=os.cpu_count(), system=platform.platform(),
        instruction_set=_native.instruction_set(), python=platform.python_version(), commit=commit,
        onnxruntime=onnxruntime.__version__, torch="2.13.0", onnxruntime_training="1.19.2",
        command="bench/run.py " + " ".join(sys.argv[1:]),
    )  # fmt: skip


def save(rows: list[dict], path: Path) -> None:
    """Write the rows in the order of lines.py. Lines of the file that were not run this time stay as they are."""

    def key(row):
        return row["op"], row["title"], row["threads"]

    before = json.loads(path.read_text())["rows"] if path.exists() else []
    known = {key(r): r for r in (*before, *rows)}
    ordered = [(b.op, b.title, t) for b in BENCHES for t in sorted({k[2] for k in known})]
    kept = [known[k] for k in ordered if k in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"environment": environment(), "rows": kept}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="operators to run")
    parser.add_argument(
        "--seconds", type=float, default=4, help="time for each line, all contenders together"
    )
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument(
        "--output", type=Path, help="write the results there as JSON; other lines of the file stay"
    )
    options = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    workers, limits = start_workers(), Limits()
    rows, table = [], new_table()
    chosen = [b for b in BENCHES if not options.only or b.op in options.only]
    for number, line in enumerate(chosen, 1):
        for threads in options.threads:
            if console.is_terminal:
                console.print(f"[dim]{number}/{len(chosen)} {line.op} {line.title}[/dim]", end="\r")
            rows.append(run_line(line, threads, options.seconds, workers, limits))
            add_row(table, rows[-1])
    console.print(table)
    console.print(
        "ratio: the fastest peer's best time over ours (in ORT; on NumPy for 16 elements); below 1 is a loss."
    )
    if options.output:
        save(rows, options.output)


if __name__ == "__main__":
    main()
