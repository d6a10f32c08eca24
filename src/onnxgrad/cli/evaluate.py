"""`onnxgrad eval model.onnx --data test.npz`: loss and metrics of a model on a dataset."""

from __future__ import annotations

import argparse
import json

from rich.console import Console
from rich.table import Table

from onnxgrad.cli.exit_codes import OK


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser("eval", help="loss and metrics of a model on a dataset")
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument("--data", required=True, help="a dataset, as for train")
    parser.add_argument(
        "--target", default="", help="name of the target column or array (default: guessed)"
    )
    parser.add_argument("--loss", default="", help="as for train (default: guessed)")
    parser.add_argument("--metrics", default="", help="as for train (default: by the loss)")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(options: argparse.Namespace) -> int:
    from onnxgrad.errors import DataError
    from onnxgrad.inspection.reading import read
    from onnxgrad.job import data
    from onnxgrad.job.matching import match
    from onnxgrad.job.run import METRICS
    from onnxgrad.train.guess import guess_loss
    from onnxgrad.train.trainer import Trainer

    _, prepared = read(options.model)
    matched = match(prepared, data.read(options.data), options.target, options.data)
    if matched.target is None:
        raise DataError(f"{options.data} has no target: name it with --target")
    loss = options.loss or guess_loss(options.model, matched.target)[0]
    metrics = [m for m in (options.metrics or METRICS.get(loss, "")).split(",") if m]
    trainer = Trainer(options.model, loss=loss, metrics=metrics)
    result = trainer.evaluate(matched.inputs, matched.target, batch_size=options.batch_size)
    if options.json:
        print(json.dumps(result))
        return OK
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for name, value in result.items():
        table.add_row(name, f"[bold]{value:.6g}[/bold]")
    Console(highlight=False).print(table)
    return OK
