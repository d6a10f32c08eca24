"""`onnxgrad check model.onnx`: are the gradients right? Central differences decide."""

from __future__ import annotations

import argparse

from rich.markup import escape
from rich.table import Table

from onnxgrad.cli.arguments import at_least_one
from onnxgrad.cli.exit_codes import FAILED, OK
from onnxgrad.cli.texts import Console
from onnxgrad.errors import ModelError
from onnxgrad.files.arrays import read_npz
from onnxgrad.inspection.probe import Probe


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "check",
        help="compare the gradients of a model with central differences",
        description="Exit code 0 when every gradient is right, 1 when one is not.",
    )
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument(
        "--data", metavar="FILE.npz", help="inputs by name (default: random numbers)"
    )
    parser.add_argument(
        "--directions",
        type=at_least_one,
        default=2,
        metavar="N",
        help="directions per parameter (default 2)",
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser


def run(options: argparse.Namespace) -> int:
    console = Console(highlight=False)
    with Probe(options.model) as running:
        from onnxgrad.checking import check_gradients
        from onnxgrad.files.models import ModelFile
        from onnxgrad.inspection.reading import read

        model = ModelFile.of(options.model)
        read(model)  # a file that is not a model gives its sentence here
        verdict = running.verdict()
    if verdict.crashed:
        raise ModelError(f"{options.model}: {verdict.text}")
    data = read_npz(options.data) if options.data else None
    with console.status("checking") as status:
        result = check_gradients(
            model,
            data,
            directions=options.directions,
            seed=options.seed,
            progress=lambda row: status.update(f"checking {escape(row.parameter)}"),
        )
    show(result, console)
    return OK if result.good else FAILED


def show(result, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("parameter", overflow="fold")
    for title in ("shape", "|gradient|", "error", ""):
        table.add_column(title, justify="right", no_wrap=True)
    for row in result.rows:
        verdict = "[green]✓[/green]" if row.good else "[red]✗[/red]"
        shape = "×".join(map(str, row.shape))
        table.add_row(escape(row.parameter), shape, f"{row.norm:.3g}", f"{row.error:.1e}", verdict)
    console.print(table)
    how = f"{len(result.rows)} gradients, checked in {result.precision}"
    if result.good:
        console.print(f"\n[bold green]right[/bold green]: {how}")
        return
    wrong = sum(not row.good for row in result.rows)
    console.print(f"\n[bold red]wrong[/bold red]: {wrong} of {how}")
    culprit = (
        result.culprit
        or "no single operator is to blame: there is a kink near the inputs, or several act together"
    )
    console.print(f"suspect: [bold]{escape(culprit)}[/bold]")
