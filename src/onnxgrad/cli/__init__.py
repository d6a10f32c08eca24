"""The command line: `onnxgrad <subcommand>`. One file per subcommand, each with `add_parser` and `run`."""

from __future__ import annotations

import argparse
import io
import platform
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version

import onnxgrad
from onnxgrad import _native
from onnxgrad.cli import (
    artifacts,
    check,
    convert_checkpoint,
    demo,
    evaluate,
    federated,
    grad,
    inspect,
    lr_find,
    merge,
    ops,
    predict,
    report,
    step,
    train,
)
from onnxgrad.cli.arguments import CommandParser
from onnxgrad.cli.foreign_flags import answer
from onnxgrad.cli.outcome import outcome, said
from onnxgrad.errors import ConfigError
from onnxgrad.files.limits import override, parse

COMMANDS = (
    train, evaluate, predict, lr_find, report, inspect, check, grad, step, merge, federated, ops,
    artifacts, convert_checkpoint, demo,
)  # fmt: skip


def build_parser() -> CommandParser:
    """The parser with every subcommand."""
    parser = CommandParser(
        prog="onnxgrad", description="Train ONNX models on the ONNX Runtime you already have."
    )
    parser.add_argument(
        "--version", action=_Version, help="print the versions that matter in a bug report"
    )
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=CommandParser
    )
    parser.commands = commands.choices
    for module in COMMANDS:
        command = module.add_parser(commands)
        command.set_defaults(run=module.run)
        command.add_argument(
            "--limit", action="append", default=[], metavar="NAME=N",
            help="raise a limit on what a file may ask for; the error that needs it names it",
        )  # fmt: skip
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. Errors are a sentence on stderr, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a formula has characters that ASCII has not
        sys.stdout.reconfigure(errors="replace")
    return said(*outcome(lambda: _run(arguments)))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        parser = build_parser()
        given = sys.argv[1:] if arguments is None else list(arguments)
        reply = answer(given, parser.commands)
        if reply:
            raise ConfigError(reply)
        options = parser.parse_args(given)
        _find_model(options)
        raised = parse(options.limit)
        with override(**raised) if raised else nullcontext():
            return options.run(options)
    finally:
        print(end="", flush=True)  # at exit it is too late: Python turns a closed pipe into 120


def _find_model(options: argparse.Namespace) -> None:
    """Put a file in the place of a hub address; training keeps the address, after which its run is named."""
    model = getattr(options, "model", None)
    keeps = options.run in (train.run, lr_find.run)
    if isinstance(model, str) and model.startswith("hf://") and not keeps:
        from onnxgrad.files.hub import local

        options.model = str(local(model))


class _Version(argparse.Action):
    """`--version`: ours, and that of everything that computes."""

    def __init__(self, option_strings, dest, **options):
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser, namespace, values, option_string=None):
        print(f"onnxgrad {onnxgrad.__version__} ({_native.instruction_set()})")
        for name in ("onnxruntime", "onnx", "onnx-ir", "numpy"):
            try:
                print(f"{name} {version(name)}")
            except PackageNotFoundError:
                print(f"{name} is not installed")
        print(f"Python {platform.python_version()}, {platform.platform()}")
        parser.exit()
