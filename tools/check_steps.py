"""Trains with the step file of every model in a folder, beside Trainer: do they agree, and what does the file cost?

    python tools/check_steps.py FOLDER [--only TEXT ...] [--steps 100] [--optimizer sgd] [--lr 1e-3] [--fused]

Without FOLDER, the package's own demo networks. A model gets inputs from the reference that an index.json names, else
random ones, and a mean squared error to random targets of its first output of floats. The step file runs in a plain
session, its results are given back as its inputs, and after every step its loss is compared with that of Trainer; in
the end all weights and running statistics are. Differences are relative: of losses to the larger of the loss and the
first, of tensors to their largest number. Times are processor time on one thread, the best of the steps, in turn.

Float32 cannot promise 1e-6 to every network: a ReLU at its kink, or Adam dividing a gradient that is zero but for
rounding by its own size, makes large differences of small ones. So where one is off, four more Trainers get the
same batch with every number moved by one unit in the last place, up or down at random. A tensor or loss agrees when it
is as near as 1e-6, or no farther than twice what that moves it (column `rounding`: of the tensor that is farthest off).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import onnxgrad
from onnxgrad.checking.feeds import random_feeds
from onnxgrad.demo import models as demo
from onnxgrad.graph import load
from onnxgrad.stepfile import StepFiles, write_step
from onnxgrad.stepfile.graph import new_name

BOUND = 1e-6
ROUNDINGS = 4
LOSS = "the loss"
UNIT = 2.0**-23  # in the last place of a float32, relative


@dataclass
class Row:
    name: str
    opset: int
    bytes: int  # of the step file
    share: float  # of the model's own
    milliseconds: float
    trainer: float
    loss: float  # the largest relative difference
    weights: float
    rounding: float  # how far one rounding of the batch moves that tensor
    tensor: str  # the one that is farthest off
    explained: bool  # whatever is off, by what one rounding moves it

    @property
    def near(self) -> bool:
        return max(self.loss, self.weights) <= BOUND

    @property
    def right(self) -> bool:
        return self.explained


class Loop:
    """What a program on a device does."""

    def __init__(self, files: StepFiles, fused: bool):
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, 1
        if fused:
            onnxgrad.register(options)
        self.about, self.done = files.description, 0
        self.session = onnxruntime.InferenceSession(str(files.step), options)
        first = onnxruntime.InferenceSession(str(files.initial), options)
        self.values = dict(
            zip([o.name for o in first.get_outputs()], first.run(None, {}), strict=True)
        )
        self.outputs = [o.name for o in self.session.get_outputs()]
        self.inputs = {i.name for i in self.session.get_inputs()}

    def step(self, batch: dict[str, np.ndarray], lr: float) -> float:
        feeds = {
            **batch,
            **self.values,
            "lr": np.array(lr, np.float32),
            "step": np.array(self.done + 1),
        }
        feeds["dropout/key"] = np.array([0, self.done])
        known = {n: a for n, a in feeds.items() if n in self.inputs}
        results = dict(zip(self.outputs, self.session.run(None, known), strict=True))
        self.values = {name: results[new_name(name)] for name in self.values}
        self.done += 1
        return float(results[self.about.loss])


def compared(
    path: Path, name: str, feeds: dict[str, np.ndarray], options: argparse.Namespace
) -> Row:
    """Train both, step by step."""
    settings = dict(loss="mse", optimizer=options.optimizer, lr=options.lr)
    with tempfile.TemporaryDirectory() as folder:
        files = write_step(path, Path(folder) / "step.onnx", fused=options.fused, **settings)
        size, opset = files.step.stat().st_size, onnx.load(files.step).opset_import[0].version
        loop = Loop(files, options.fused)
    trainer = onnxgrad.Trainer(path, threads=1, **settings)
    target = trainer.target_names[0]
    judged = trainer.predict(feeds, batch_size=1 << 30)
    shape = (next(iter(judged.values())) if isinstance(judged, dict) else judged).shape
    batch = {**feeds, target: np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    times, losses = ([], []), ([], [])
    for _ in range(options.steps):
        began = time.process_time()
        found = loop.step(batch, options.lr)
        middle = time.process_time()
        expected = trainer.step(batch)["loss"]
        times[0].append(middle - began)
        times[1].append(time.process_time() - middle)
        losses[0].append(found)
        losses[1].append(expected)
    weights, worst = trainer.get_weights(), losses_apart(*losses)
    off = {n: far(loop.values[n], a) for n, a in weights.items()}
    near = max(worst, *off.values()) <= BOUND
    moved = {**off, LOSS: worst}
    if not near:
        moved = moved_by_rounding(path, batch, weights, losses[1], settings)
    explained = all(d <= max(BOUND, 2 * moved[n]) for n, d in {**off, LOSS: worst}.items())
    farthest = max(off, key=off.get)
    ours, theirs = (1e3 * min(t) for t in times)
    share, differences = size / path.stat().st_size, (worst, off[farthest], moved[farthest])
    return Row(name, opset, size, share, ours, theirs, *differences, farthest, explained)


def moved_by_rounding(
    path: Path,
    batch: dict[str, np.ndarray],
    weights: dict[str, np.ndarray],
    losses: list[float],
    settings: dict[str, object],
) -> dict[str, float]:
    """How far the last places of the batch move each trained tensor, and the loss, at most."""
    moved = dict.fromkeys([*weights, LOSS], 0.0)
    for seed in range(ROUNDINGS):
        trainer = onnxgrad.Trainer(path, threads=1, **settings)
        rounded = one_rounding_off(batch, seed)
        own = [trainer.step(rounded)["loss"] for _ in losses]
        found = {n: far(a, weights[n]) for n, a in trainer.get_weights().items()}
        found[LOSS] = losses_apart(own, losses)
        moved = {n: max(moved[n], distance) for n, distance in found.items()}
    return moved


def one_rounding_off(batch: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The batch with every float32 moved up or down by one unit in its last place at most, at random."""
    draw = np.random.default_rng(seed)
    return {
        n: (a * (1 + UNIT * draw.choice([-1, 1], a.shape))).astype(np.float32)
        if a.dtype == np.float32
        else a
        for n, a in batch.items()
    }


def losses_apart(found: list[float], expected: list[float]) -> float:
    """The largest difference, relative to the larger of the loss and the first."""
    pairs = zip(found, expected, strict=True)
    return max(abs(a - b) / max(abs(b), abs(expected[0])) for a, b in pairs)


def far(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest number; of tensors of zeros, itself."""
    wide = np.abs(found.astype(np.float64) - expected).max(initial=0.0)
    return float(wide / (float(np.abs(expected).max(initial=0.0)) or 1.0))


def problems(
    folder: Path | None, scratch: Path
) -> Iterator[tuple[Path, str, dict[str, np.ndarray]]]:
    """Model files with their inputs."""
    if folder is None:
        for kind in demo.MODELS:
            path = scratch / f"{kind}.onnx"
            demo.write(kind, path)
            yield path, path.name, random_feeds(load(path), np.random.default_rng(0))
        return
    index = folder / "index.json"
    entries = json.loads(index.read_text()) if index.exists() else {}
    references = {
        f"{model}.{kind}.onnx": folder / variant["ref"]
        for model, entry in entries.items()
        for kind, variant in entry["variants"].items()
    }
    for path in sorted(folder.glob("*.onnx")):
        model = load(path)
        feeds = random_feeds(model, np.random.default_rng(0))
        if path.name in references:
            data = np.load(references[path.name])
            for k, name in enumerate(feeds):
                feeds[name] = data[f"in_{k}"].astype(feeds[name].dtype)
        yield path, path.name, feeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--fused", action="store_true")
    options = parser.parse_args()
    near = right = count = 0
    print(
        f"{'model':34} opset {'KB':>8} {'size':>6} {'ms':>8} {'Trainer':>8}  {'loss':>8} {'weights':>8} {'rounding':>8}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        for path, name, feeds in problems(options.folder, Path(scratch)):
            if options.only and not any(text in name for text in options.only):
                continue
            count += 1
            try:
                row = compared(path, name, feeds, options)
            except Exception as error:
                print(f"{name:34} failed: {type(error).__name__}: {error}", flush=True)
                continue
            near += row.near
            right += row.right
            print(
                f"{name:34} {row.opset:5} {row.bytes / 1024:8.0f} {row.share:6.2f} {row.milliseconds:8.3f} "
                f"{row.trainer:8.3f}  {row.loss:8.1e} {row.weights:8.1e} "
                f"{'' if row.near else f'{row.rounding:8.1e} {row.tensor}'}{'' if row.right else '  OFF'}",
                flush=True,
            )
    print(
        f"{near} of {count} agree to {BOUND:g} over {options.steps} steps, {right} to that or to what one rounding "
        "of the batch moves"
    )
    raise SystemExit(right != count)


if __name__ == "__main__":
    main()
