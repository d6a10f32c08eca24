"""`onnxgrad demo`: train a small network on real handwritten digits, from one ONNX file to another."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from onnxgrad.cli.exit_codes import OK
from onnxgrad.cli.texts import Console
from onnxgrad.cli.train import train
from onnxgrad.demo import digits
from onnxgrad.job.config import Config, command

SETTINGS = {
    "cnn": dict(epochs=12, lr=3e-3, batch_size=32),
    "gru": dict(epochs=25, lr=5e-3, batch_size=32),
    "lstm": dict(epochs=25, lr=5e-3, batch_size=32),
    "transformer": dict(epochs=25, lr=3e-3, batch_size=32),
}


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "demo", help="train a small network on handwritten digits that come with onnxgrad"
    )
    parser.add_argument("--model", choices=sorted(SETTINGS), default="cnn")
    parser.add_argument(
        "--folder", default="runs/demo", help="where to write everything (default runs/demo)"
    )
    parser.add_argument(
        "--epochs", type=int, help="how often it sees the digits (default 12 or 25)"
    )
    return parser


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    given = {} if options.epochs is None else {"epochs": options.epochs}
    return {**SETTINGS[options.model], **given}


def run(options: argparse.Namespace) -> int:
    from onnxgrad.demo import models

    console = Console(highlight=False)
    folder = Path(options.folder) / options.model
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "run", ignore_errors=True)  # of an earlier demo
    model, tuned = folder / "model.onnx", folder / "tuned.onnx"
    models.write(options.model, model)
    split = digits.write(folder)
    console.print(f"[bold]onnxgrad demo[/bold]: a {options.model} on the UCI handwritten digits\n")
    settings = Config(
        data=str(split.train), val=str(split.validation), output=str(tuned), run_dir=str(folder / "run"),
        schedule="cosine", **settings_of(options),
    )  # fmt: skip
    console.print(f"$ {command(str(model), settings)}\n", markup=False, soft_wrap=True)
    code = train(str(model), settings)
    if code != OK:
        return code
    show_test(console, model, tuned, split.test)
    return OK


def show_test(console: Console, model: Path, tuned: Path, test: Path) -> None:
    """Both files in plain onnxruntime sessions, without our library, on digits that training never saw."""
    import onnxruntime

    with np.load(test) as data:
        x, y = data["x"], data["label"]

    def accuracy(path: Path) -> float:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return float((session.run(None, {"x": x})[0].argmax(1) == y).mean())

    console.print(
        f"\n{len(y)} test digits in a plain onnxruntime {onnxruntime.__version__} session, without our library:"
    )
    console.print(
        f"accuracy {accuracy(model):.1%} before, [bold green]{accuracy(tuned):.1%}[/bold green] after"
    )
