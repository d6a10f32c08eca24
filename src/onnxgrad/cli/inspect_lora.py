"""`onnxgrad inspect model.onnx --lora r=8`: which layers an adapter would train, and what that costs."""

from __future__ import annotations

import json

from rich.markup import escape
from rich.table import Table

from onnxgrad.cli.exit_codes import OK
from onnxgrad.cli.texts import Console
from onnxgrad.model.lora.settings import Lora

# Bytes a trained number: itself, its gradient and the two moments of Adam, float32 each.
BYTES = 16


def described(path: str, text: str) -> dict[str, object]:
    """Return the adapter as data; docs/lora.md lists the keys."""
    from onnxgrad.model.lora.change import LoraChange
    from onnxgrad.model.trainable import TrainableModel

    change = LoraChange(Lora.parse(text))
    TrainableModel(path, changes=[change])
    adapter = change.adapter
    numbers = sum(a.size for a in adapter.tensors.values())
    return {
        "model": path,
        "settings": adapter.lora.text(),
        "reason": adapter.reason,
        "layers": adapter.rows(),
        "trained_in_full": adapter.saved,
        "numbers": numbers,
        "numbers_of_the_model": adapter.total,
        "share": numbers / max(adapter.total, 1),
        "training_bytes": BYTES * numbers,
        "notes": adapter.notes(),
    }


def run(path: str, text: str, as_json: bool) -> int:
    """Print it."""
    found = described(path, text)
    if as_json:
        print(json.dumps(found, indent=1))
        return OK
    console = Console(highlight=False)
    console.print(f"[bold]{escape(path)}[/bold] --lora {escape(str(found['settings']))}\n")
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("layer", overflow="fold")
    for title in ("kind", "weight", "size", "numbers"):
        table.add_column(title, justify="right")
    for row in found["layers"]:
        size = " × ".join(str(n) for n in (row["in"], row["out"], *row["kernel"]))
        table.add_row(escape(row["layer"]), row["kind"], row["form"], size, f"{row['numbers']:,}")
    console.print(table)
    console.print()
    for note in found["notes"]:
        console.print(escape(note))
    megabytes = found["training_bytes"] / 1e6
    console.print(
        f"adapter, gradients and the two moments of Adam take {megabytes:,.3g} MB beside the model"
    )
    return OK
