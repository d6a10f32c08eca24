"""`onnxgrad federated model.onnx --loss cross_entropy -o project`: a Flower project to start from."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.markup import escape

from onnxgrad.cli.exit_codes import OK
from onnxgrad.cli.texts import Console


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "federated",
        help="write a Flower project that trains a model where the data are",
        description="This command needs nothing more; the project needs pip install 'onnxgrad[flower]'.",
    )
    parser.add_argument("model", help="an ONNX file; the project gets a copy")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="the project")
    parser.add_argument(
        "--loss", default="cross_entropy", help="cross_entropy (default), bce, mse …"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="of the server (default 3)"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    from onnxgrad.files.models import read_whole
    from onnxgrad.flower.project import scaffold

    model = read_whole(options.model).SerializeToString()
    written = scaffold(Path(options.output), model, options.model, options.loss, options.rounds)
    console = Console(highlight=False)
    for path in written:
        console.print(f"wrote [bold]{escape(str(path))}[/bold]")
    console.print("README.md there says how to start a server, nodes and a run")
    return OK
