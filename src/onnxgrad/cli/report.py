"""`onnxgrad report runs/*`: several runs on one page."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from rich.table import Table

from onnxgrad.cli.exit_codes import OK
from onnxgrad.cli.texts import Console
from onnxgrad.files.write import check_target, write_bytes
from onnxgrad.texts import short

PAGE = "comparison.html"


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "report", help="compare runs: scores, settings and curves of several on one page"
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN_FOLDER", help="folders of runs, such as runs/*"
    )
    parser.add_argument(
        "-o", "--output", default=PAGE, metavar="FILE.html", help=f"where to write (default {PAGE})"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    from onnxgrad.job import compare

    path = Path(options.output)
    if path.suffix not in (".html", ".htm"):
        raise ValueError(f"-o {path} ends in '{path.suffix}', expected .html")
    check_target(path)
    runs, refused = compare.read_runs(options.runs)
    page = compare.page(runs, path.parent.resolve())
    write_bytes(path, page.encode(errors="replace"))
    console = Console(highlight=False)
    for reason in refused:
        console.print(f"· left out: {reason}", markup=False)
    console.print(_table(runs))
    console.print(f"\npage    {path}", markup=False)
    return OK


def _table(runs) -> Table:
    """The scores, the best of each in bold."""
    from onnxgrad.job import compare

    names, values = compare.scores(runs)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("run", overflow="fold")
    for name in names:
        table.add_column(name, justify="right")
    tops = [compare.best(n, [row[i] for row in values]) for i, n in enumerate(names)]
    for run, mine in zip(runs, values, strict=True):
        cells = [
            "" if math.isnan(v) else f"[bold]{short(v)}[/bold]" if v == top else short(v)
            for v, top in zip(mine, tops, strict=True)
        ]
        table.add_row(run.name.replace("[", "\\["), *cells)
    return table
