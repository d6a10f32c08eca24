"""`onnxgrad step model.onnx --loss cross_entropy -o step.onnx`: a training step as one ONNX file."""

from __future__ import annotations

import argparse

from rich.markup import escape

from onnxgrad.cli.exit_codes import OK
from onnxgrad.cli.texts import Console, show_notes


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "step",
        help="write a training step as one ONNX file that any onnxruntime runs",
        description="Writes STEP.onnx (batch, parameters and optimizer state in; loss and their new values out), "
        "STEP.init.onnx (the values of the first step) and STEP.eval.onnx (the model with its parameters as inputs).",
    )
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument("-o", "--output", required=True, metavar="STEP.onnx", help="the step file")
    parser.add_argument(
        "--loss", help="cross_entropy, bce, mse …; default: the model's scalar output"
    )
    parser.add_argument(
        "--axis", type=int, default=0, metavar="N", help="axis of the output that holds the classes"
    )
    parser.add_argument("--optimizer", default="adamw", help="adamw (default), adam or sgd")
    parser.add_argument("--lr", type=float, help="the rate that emitted programs use")
    parser.add_argument("--trainable", nargs="+", default=["all"], metavar="NAME")
    parser.add_argument(
        "--clip", type=float, metavar="NORM", help="the largest norm of all gradients"
    )
    parser.add_argument(
        "--freeze-bn", action="store_true", help="keep batch normalisations as they are"
    )
    parser.add_argument(
        "--dropout", type=float, help="the rate of the Dropout nodes; 0 leaves them out"
    )
    parser.add_argument(
        "--fused", action="store_true", help="use onnxgrad's operators: faster, needs its library"
    )
    parser.add_argument(
        "--emit",
        choices=("js", "web", "cpp", "csharp", "java"),
        help="also write a program that trains with it: Node.js, a browser, C++, C# or Java",
    )
    return parser


def run(options: argparse.Namespace) -> int:
    from onnxgrad.stepfile import write_step
    from onnxgrad.train.losses import with_axis

    console = Console(highlight=False)
    written = write_step(
        options.model, options.output, loss=with_axis(options.loss, options.axis),
        optimizer=options.optimizer, lr=options.lr, trainable=options.trainable, clip_norm=options.clip,
        freeze_bn=options.freeze_bn, dropout=options.dropout, fused=options.fused,
        emit=options.emit,
    )  # fmt: skip
    show_notes(written.notes, console)
    about = written.description
    rows = {
        "step": (written.step, f"{', '.join([*about.batch, *about.targets])} → {about.loss}"),
        "start": (
            written.initial,
            f"{len(about.parameters)} parameters, {len(about.state)} of state",
        ),
        "evaluate": (written.evaluate, "the model with its parameters as inputs"),
    }
    if written.program:
        rows["program"] = (written.program, "trains with them")
    for name, (path, text) in rows.items():
        console.print(f"{name:9} [bold]{escape(str(path))}[/bold]  {escape(text)}")
    if options.fused:
        console.print("run it in sessions that have registered onnxgrad.library_path()")
    return OK
