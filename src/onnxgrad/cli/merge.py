"""`onnxgrad merge model.onnx trained.safetensors -o tuned.onnx`: trained parameters back into their model."""

from __future__ import annotations

import argparse

from rich.markup import escape

from onnxgrad.cli.exit_codes import OK
from onnxgrad.cli.texts import Console


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "merge",
        help="write trained parameters back into a model",
        description="The parameters are what a program that runs a step file (onnxgrad step) has written.",
    )
    parser.add_argument("model", help="the ONNX file that the step file was made from")
    parser.add_argument("parameters", help="a .safetensors or .npz file, tensors by name")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the tuned model")
    return parser


def run(options: argparse.Namespace) -> int:
    from onnxgrad.stepfile import merge

    names = merge(options.model, options.parameters, options.output)
    Console(highlight=False).print(
        f"wrote [bold]{escape(options.output)}[/bold] with {len(names)} trained tensors"
    )
    return OK
