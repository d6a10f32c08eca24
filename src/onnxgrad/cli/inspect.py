"""`onnxgrad inspect model.onnx`: what can be trained, what cannot, why, and what to do."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table

from onnxgrad.cli.arguments import at_least_one, shape_of_input
from onnxgrad.cli.exit_codes import NOT_TRAINABLE, OK
from onnxgrad.cli.inspect_lora import run as run_lora
from onnxgrad.cli.texts import Console
from onnxgrad.inspection.probe import Probe, Verdict

MOST_LAYERS = 40
MOST_NODES = 8
# What stands beside weights in a layer, in words.
KINDS = {"statistic": "running statistics", "setting": "a setting", "constant": "a constant",
         "mask": "a mask", "table": "a table", "buffer": "a buffer"}  # fmt: skip


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "inspect",
        help="say what in a model can be trained, what cannot, why, and what to do",
        description="Exit code 0 when something can be trained, 3 when not, 2 when there is no model to read.",
    )
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument(
        "--batch",
        type=at_least_one,
        default=1,
        metavar="N",
        help="batch size for the estimates (default 1)",
    )
    parser.add_argument(
        "--shape",
        type=shape_of_input,
        action="append",
        default=[],
        metavar="NAME=N,N,...",
        help="sizes of an input that the model leaves open, for the estimates: image=8,3,320,320",
    )
    parser.add_argument(
        "--trainable",
        default="all",
        metavar="NAMES",
        help="what the estimates train: all, head, or patterns separated by commas",
    )
    for flag, what in (("--tie", "keep as one"), ("--untie", "part")):
        parser.add_argument(
            flag, default="", metavar="NAMES", help=f"shared tensors to {what}, as for train"
        )
    parser.add_argument(
        "--json", action="store_true", help="print JSON, documented in docs/inspect.md"
    )
    parser.add_argument(
        "--no-runtime", action="store_true", help="do not try to load the model in onnxruntime"
    )
    parser.add_argument(
        "--lora",
        metavar="TEXT",
        help="show what an adapter with these settings would train: r=8,alpha=16,targets=q_proj|v_proj",
    )
    return parser


def run(options: argparse.Namespace) -> int:
    if options.lora is not None:
        return run_lora(options.model, options.lora, options.json)
    if options.no_runtime:
        report, verdict = inspected(options), Verdict(True, "")
    else:
        with Probe(options.model) as running:
            report = inspected(options)
            verdict = running.verdict()
    if options.json:
        loads = None if options.no_runtime else verdict.loads
        runtime = {"loads": loads, "text": verdict.text}
        print(json.dumps({**report.as_dict(), "onnxruntime": runtime}, indent=1))
    else:
        show(report, verdict, Console(highlight=False))
    return OK if report.trainable else NOT_TRAINABLE


def inspected(options: argparse.Namespace):
    from onnxgrad.inspection.report import inspect

    return inspect(
        options.model,
        batch=options.batch,
        shapes=dict(options.shape),
        trainable=options.trainable.split(","),
        tie=options.tie,
        untie=options.untie,
    )


def show(report, verdict, console: Console) -> None:
    console.print(f"[bold]{escape(report.source)}[/bold]")
    made = f", made by {escape(report.producer)}" if report.producer else ""
    console.print(f"opset {report.opset}, IR {report.ir_version}, {report.nodes:,} nodes{made}\n")
    console.print(tensors(report))
    show_parameters(report, console)
    show_obstacles(report, console)
    show_cost(report, console)
    notes = plain_table()
    for text in [*report.warnings, *([verdict.text] if not verdict.loads else [])]:
        notes.add_row("[yellow]note[/yellow]", escape(text))
    if notes.row_count:
        console.print()
        console.print(notes)
    console.print()
    show_verdict(report, console)


def tensors(report) -> Table:
    table = plain_table()
    for kind, values in (("input", report.inputs), ("output", report.outputs)):
        for value in values:
            shape = (
                "rank unknown"
                if value.shape is None
                else " × ".join(map(str, value.shape)) or "scalar"
            )
            table.add_row(kind, f"[bold]{escape(value.name)}[/bold]", value.type, escape(shape))
    return table


def plain_table() -> Table:
    return Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))


def show_parameters(report, console: Console) -> None:
    if not report.parameters:
        return console.print("\nno parameters")
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("layer", overflow="fold")
    table.add_column("tensors", justify="right")
    table.add_column("numbers", justify="right")
    table.add_column("trains", overflow="fold")
    layers = by_layer(report.parameters)
    for layer, rows in list(layers.items())[:MOST_LAYERS]:
        text, colour = trains(rows)
        numbers = f"{sum(p.size for p in rows):,}"
        name = shortened(layer, max(20, console.width - 42))
        table.add_row(escape(name), str(len(rows)), numbers, escape(text), style=colour)
    console.print()
    console.print(table)
    if len(layers) > MOST_LAYERS:
        console.print(f"… and {len(layers) - MOST_LAYERS} more layers (all of them with --json)")


def trains(rows: list) -> tuple[str, str]:
    """Whether the parameters of a layer train, in a few words, and the colour of that."""
    trained = sum(p.trainable for p in rows)
    idle = [p for p in rows if not p.trainable]
    reasons = sorted({p.why for p in idle})
    harmless = all(p.kind not in ("weight", "unreached") for p in idle)
    if not reasons:
        return "yes", ""
    if trained and harmless:
        kinds = sorted({KINDS.get(p.kind, p.kind) for p in idle})
        return f"yes, beside {' and '.join(kinds)}", ""
    if harmless:
        return f"no: {reasons[0]}", "dim"
    return f"{f'{trained} of {len(rows)}' if trained else 'no'}: {reasons[0]}", "yellow"


def shortened(name: str, width: int) -> str:
    """A long name with its middle left out: the end tells layers apart."""
    return name if len(name) <= width else f"{name[:8]}…{name[9 - width :]}"


def by_layer(parameters: Iterable) -> dict[str, list]:
    layers: dict[str, list] = {}
    for p in parameters:
        layers.setdefault(p.layer, []).append(p)
    return layers


def show_obstacles(report, console: Console) -> None:
    """Nodes that fail for the same reason are named together, with the path of the first."""
    groups: dict[tuple[str, str, str], list] = {}
    for o in report.obstacles:
        groups.setdefault((o.operator, o.because, o.instead), []).append(o)
    for (operator, because, instead), nodes in groups.items():
        names = ", ".join(f"[bold]{escape(o.node)}[/bold]" for o in nodes[:MOST_NODES])
        more = f" and {len(nodes) - MOST_NODES} more" if len(nodes) > MOST_NODES else ""
        console.print(f"\n[red]in the way[/red]  {escape(operator)}: {names}{more}")
        table = plain_table()
        table.add_row("  why", escape(because))
        table.add_row("  do", escape(instead))
        path = nodes[0].path
        if path:
            steps = path if len(path) <= 8 else [*path[:4], "…", *path[-3:]]
            table.add_row("  path", escape(" → ".join(steps)))
        console.print(table)


def show_cost(report, console: Console) -> None:
    cost = report.cost
    table = plain_table()
    loss = f"; loss: {report.guess.loss}" if report.guess.loss else ""
    table.add_row("task", f"{escape(report.guess.task)}{loss}")
    table.add_row("", f"[dim]because {escape(report.guess.because)}[/dim]")
    table.add_row(
        "a step",
        f"about {amount(cost.step_flops, 'FLOP')} and {size(cost.step_bytes)} of memory with AdamW",
    )
    named = {k: v for k, v in cost.assumed.items() if not k.startswith("unk__")}  # ONNX's own names
    if named:
        given = ", ".join(f"{k} = {v}" for k, v in list(named.items())[:4])
        table.add_row(
            "", f"[dim]with {escape(given)}; --batch sets the first dim, --shape others[/dim]"
        )
    console.print()
    console.print(table)


def show_verdict(report, console: Console) -> None:
    total = sum(p.size for p in report.parameters)
    trained = sum(p.size for p in report.parameters if p.trainable)
    if not trained:
        console.print("[bold red]not trainable[/bold red]: no parameter can be trained")
    elif any(p.kind == "weight" and not p.trainable for p in report.parameters):
        console.print(
            f"[bold yellow]partly trainable[/bold yellow]: {trained:,} of {total:,} numbers; name them with "
            "--trainable, because 'all' is refused"
        )
    else:
        console.print(f"[bold green]trainable[/bold green]: {trained:,} of {total:,} numbers")


def amount(number: float, unit: str) -> str:
    for prefix in ("", "K", "M", "G", "T", "P"):
        if number < 1000:
            return f"{number:.3g} {prefix}{unit}"
        number /= 1000
    return f"{number:.3g} E{unit}"


def size(number: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            return f"{number:.3g} {unit}" if number < 1000 else f"{number:.0f} {unit}"
        number /= 1024
    raise AssertionError
