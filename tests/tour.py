"""Every kernel, in both hosts, against its reference: the table that `make tour` shows."""

from __future__ import annotations

import time

import numpy as np
from cases import cases_of
from cases.case import DTYPES
from ort_models import run_onnxruntime
from rich.console import Console
from rich.live import Live
from rich.table import Table

import onnxgrad
from onnxgrad import _native
from onnxgrad.contracts import contracts


def new_table() -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", no_wrap=True)
    for title in ("cases", "float32 error", "float64 error", "same bits in both"):
        table.add_column(title, justify="right", no_wrap=True)
    return table


def row_of(contract) -> tuple[list[str], bool]:
    """One operator: the largest error as a share of what is promised, and whether both hosts agree."""
    worst = dict.fromkeys(DTYPES, 0.0)
    same = True
    table = cases_of(contract)
    for case in table:
        for dtype in DTYPES:
            ours, theirs = case.run_numpy(dtype), run_onnxruntime(case, dtype, threads=2)
            exact = case.run_reference(dtype)
            for name in case.wanted():
                error = case.error(name, ours[name], exact[name], dtype) / case.bound(name, dtype)
                worst[dtype] = max(worst[dtype], error)
                same = same and ours[name].tobytes() == theirs[name].tobytes()
    good = same and max(worst.values()) <= 1
    cells = [f"{'✓' if good else '✗'} {contract.name}", str(len(table))]
    cells += [f"{worst[dtype]:.0%}" for dtype in DTYPES]
    return [*cells, "yes" if same else "NO"], good


def main() -> None:
    console = Console(highlight=False)
    onnxgrad.set_num_threads(2)
    started, table, all_good = time.perf_counter(), new_table(), True
    console.print("[bold]onnxgrad[/bold]: every kernel, on NumPy arrays and in stock ONNX Runtime")
    console.print("Errors are the largest of all cases, in percent of what the contract allows.\n")
    with Live(table, console=console, refresh_per_second=8, transient=False):
        for contract in contracts().values():
            cells, good = row_of(contract)
            table.add_row(*cells, style="" if good else "red")
            all_good = all_good and good
    import onnxruntime

    seconds = time.perf_counter() - started
    verdict = "Every kernel keeps" if all_good else "Not every kernel keeps"
    console.print(f"\n{verdict} its promise ({seconds:.0f} s).")
    console.print(
        f"onnxruntime {onnxruntime.__version__}, NumPy {np.__version__}, {_native.instruction_set()}"
    )
    console.print("Next: [bold].venv/bin/onnxgrad ops GeluGrad[/bold]")
    raise SystemExit(not all_good)


if __name__ == "__main__":
    main()
