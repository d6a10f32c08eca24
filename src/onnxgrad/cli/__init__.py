"""The command line: `onnxgrad <subcommand>`. One file per subcommand, each with `add_parser` and `run`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from onnxgrad.cli import ops
from onnxgrad.errors import OnnxGradError

# Exit codes, the same for every subcommand.
OK, USAGE = 0, 2


def build_parser() -> argparse.ArgumentParser:
    """The parser with every subcommand."""
    import onnxgrad

    parser = argparse.ArgumentParser(
        prog="onnxgrad", description="Train ONNX models on the ONNX Runtime you already have."
    )
    parser.add_argument("--version", action="version", version=f"onnxgrad {onnxgrad.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (ops,):
        command = module.add_parser(commands)
        command.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = build_parser().parse_args(arguments)
    try:
        return options.run(options)
    except OnnxGradError as error:
        print(f"onnxgrad: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        sys.stderr.close()
        return OK
