"""What `inspect` sees in the recorded networks, a line for each fact: `python tests/inspection/seen.py` writes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import onnxgrad

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FILE = GOLDEN / "inspected.txt"
NAMES = sorted(path.stem for path in (GOLDEN / "networks").glob("*.npz"))
EXPORTERS = ("torchscript", "dynamo")
# They follow from every node of the gradient graph; test_memory_foretold.py holds them to what is really taken.
MOVING = ("activation_bytes", "working_bytes")


def seen(name: str, exporter: str) -> list[str]:
    """Return what is trained, how much it costs and what is noted; no reasons, which are worded elsewhere."""
    with np.load(GOLDEN / "networks" / f"{name}.npz") as golden:
        report = onnxgrad.inspect(golden[exporter].tobytes()).as_dict()
    guess, cost = report["guess"], report["cost"]
    costs = " ".join(f"{key}={value}" for key, value in sorted(cost.items()) if key not in MOVING)
    return [
        f"# {name} {exporter}",
        f"trainable={report['trainable']} nodes={report['nodes']} judged={report['judged']}",
        f"guess {guess['task']}; {guess['loss']}" if guess else "no guess",
        f"cost {costs}",
        *(f"{p['name']} [{p['layer']}] {p['type']} {p['shape']} {p['kind']} {'trains' if p['trainable'] else 'stays'}"
          f"{'' if p['possible'] else ', cannot train'}" for p in report["parameters"]),
        *(f"obstacle {o['operator']} {o['node']}" for o in report["obstacles"]),
        *(f"note {n['kind']} {n['subject']}".rstrip() for n in report["notes"]),
    ]  # fmt: skip


def recorded() -> dict[tuple[str, str], list[str]]:
    """Return what was written down, by network and exporter."""
    found: dict[tuple[str, str], list[str]] = {}
    for part in FILE.read_text(encoding="utf-8").split("\n\n"):
        lines = part.strip().splitlines()
        _, name, exporter = lines[0].split()
        found[name, exporter] = lines
    return found


if __name__ == "__main__":
    parts = ["\n".join(seen(name, exporter)) for name in NAMES for exporter in EXPORTERS]
    FILE.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
