"""`onnxgrad lr-find model.onnx --data d.npz`: which learning rate to begin with, and a picture of why."""

from __future__ import annotations

import argparse
import json

from onnxgrad.cli.exit_codes import OK
from onnxgrad.cli.texts import Console, show_notes
from onnxgrad.errors import ConfigError
from onnxgrad.job.config import add_flags, gather

PICTURE = "lr.svg"


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "lr-find",
        help="try rising learning rates and draw the loss over them",
        description="Trains for some steps with rates from --low to --high, and writes no model. The other flags are "
        "those of train; use the same ones.",
    )
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument(
        "--low", type=float, default=1e-7, metavar="X", help="first rate (default 1e-7)"
    )
    parser.add_argument(
        "--high", type=float, default=10.0, metavar="X", help="last rate (default 10)"
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=100,
        metavar="N",
        help="steps, fewer where the loss breaks (default 100)",
    )
    parser.add_argument(
        "-o",
        "--output",
        default=PICTURE,
        metavar="FILE.svg",
        help=f"where to draw (default {PICTURE})",
    )
    add_flags(parser, without=("output", "lr", "epochs", "run_dir"))
    parser.add_argument(
        "--config", metavar="FILE.yaml", help="settings from a file; flags win over it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(options: argparse.Namespace) -> int:
    from onnxgrad.job.run import TrainingJob

    config = gather(options)
    if not config.output.endswith(".svg"):
        raise ConfigError(
            f"-o {config.output} is not the name of a picture, expected one ending in .svg"
        )
    console = Console(highlight=False, quiet=options.json)
    job = TrainingJob(options.model, config, leaves_folder=False)
    show_notes(job.notes, console)
    curve = job.trainer.find_lr(job.data, low=options.low, high=options.high, steps=options.steps)
    curve.plot(config.output)
    if options.json:
        found = {"suggestion": curve.suggestion, "limit": curve.limit, "picture": config.output}
        print(json.dumps({**found, "rates": curve.rates, "losses": curve.losses}))
        return OK
    console.print(str(curve), markup=False)
    console.print(f"picture {config.output}", markup=False)
    return OK
