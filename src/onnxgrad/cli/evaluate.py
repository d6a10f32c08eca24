"""`onnxgrad eval model.onnx --data test.npz`: loss and metrics of a model on a dataset."""

from __future__ import annotations

import argparse
import json

from rich.table import Table

from onnxgrad.cli.arguments import at_least_one
from onnxgrad.cli.exit_codes import OK
from onnxgrad.cli.texts import Console, show_notes
from onnxgrad.job.config import INPUT_FLAGS, Config, add_flags, input_flags
from onnxgrad.job.texts import split_names


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser("eval", help="loss and metrics of a model on a dataset")
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument("--data", required=True, help="a dataset, as for train")
    parser.add_argument(
        "--target", default="", help="name of the target column or array (default: guessed)"
    )
    parser.add_argument("--ignore", default="", help="columns to leave out, separated by commas")
    parser.add_argument("--loss", default="", help="as for train (default: guessed)")
    parser.add_argument("--axis", type=int, default=0, metavar="N", help="as for train")
    parser.add_argument(
        "--model-output",
        default="",
        help="the output that the loss judges (default: the first float output)",
    )
    parser.add_argument("--metrics", default="", help="as for train (default: by the loss)")
    parser.add_argument("--batch-size", type=at_least_one, default=32, metavar="N")
    parser.add_argument("--tokenizer", default="", metavar="FILE", help="text: as for train")
    parser.add_argument("--max-length", type=int, default=0, metavar="N", help="text: as for train")
    add_flags(parser, only=set(INPUT_FLAGS) - {"tokenizer", "max_length"})
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(options: argparse.Namespace) -> int:
    from onnxgrad.files.models import ModelFile
    from onnxgrad.job.language import is_language_run
    from onnxgrad.job.objective import Objective
    from onnxgrad.job.prepare import Request, prepare
    from onnxgrad.train.trainer import Trainer

    model = ModelFile.of(options.model)
    if is_language_run(model, options):
        return run_language(model, options)
    ignore = split_names(options.ignore)
    inputs = input_flags(options)
    request = Request(options.target, ignore, options.loss, options.model_output, inputs=inputs)
    job = prepare(model, options.data, request)
    settings = Config(loss=options.loss, axis=options.axis, model_output=options.model_output)
    losses = Objective(job, settings, None).losses()
    trainer = Trainer(model, loss=losses, metrics=job.metrics(options.metrics))
    batches = job.all_rows(trainer.target_names, options.batch_size)
    result = trainer.evaluate(batches)
    kinds = ("class axis", "probabilities", "logits", "target")
    settled = [n for n in trainer.notes if n.kind in kinds]
    show(options, {"rows": batches.rows}, result, [*job.notes, *job.flat_targets(), *settled])
    return OK


def run_language(model, options: argparse.Namespace) -> int:
    """Loss and perplexity of text."""
    from onnxgrad.job.language import Text
    from onnxgrad.train.trainer import Trainer

    config = Config(
        data=options.data, tokenizer=options.tokenizer, max_length=options.max_length,
        batch_size=options.batch_size,
    )  # fmt: skip
    text = Text.open(model, config)
    trainer = Trainer(model, loss=text.loss(), metrics=text.metrics(options.metrics))
    batches = text.batches(text.examples(options.data), config)
    result = trainer.evaluate(batches)
    counts = {"rows": batches.rows, "tokens": batches.learned}
    show(options, counts, result, [*text.notes, *batches.notes])
    return OK


def show(options: argparse.Namespace, counts: dict, result: dict, notes: list[str]) -> None:
    """Print the numbers, as JSON or as a table."""
    if options.json:
        print(json.dumps(result))
        return
    console = Console(highlight=False)
    show_notes(notes, console)
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for name, value in counts.items():
        table.add_row(name, f"{value:,}")
    for name, value in result.items():
        table.add_row(name, f"[bold]{value:.6g}[/bold]")
    console.print(table)
