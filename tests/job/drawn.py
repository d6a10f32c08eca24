"""Charts of every kind: `python tests/job/drawn.py` writes them to tests/golden/charts.svg, to be looked at."""

from __future__ import annotations

import math
from pathlib import Path

from onnxgrad.charts import Chart, Picture, curves

FILE = Path(__file__).resolve().parents[1] / "golden" / "charts.svg"
NAN = math.nan


def picture() -> Picture:
    """Return charts that need every part of the drawing: axes, ticks, marks, legends with and without room."""
    line = [(float(x), 0.1 * x * x - 3) for x in range(14)]
    few = [(1.0, 2.0), (2.0, 8.5), (3.0, NAN), (4.0, 4.0)]
    epochs = [{"epoch": e, "step": 10 * e, "loss": 3.0 / e, "val_loss": 4.0 / e, "accuracy": 0.2 * e, "lr": 1e-4 * e}
              for e in (1, 2, 3)]  # fmt: skip
    return Picture([
        Chart("a <title>", {"long": line, "few & bent": few}),
        Chart("one value", {"flat": [(0.0, 5.0), (1.0, 5.0)]}),
        Chart("zero", {"flat": [(2.0, 0.0)]}),
        Chart("logarithms", {"l": [(0.0, 1.0), (1e-4, 0.0), (1e-3, 20.0), (1e-2, 3000.0), (1.0, 0.5)]},
              log_x=True, log_y=True, mark=(1e-3, "here")),
        Chart("narrow decades", {"l": [(2.0, 3.0), (4.0, 7.0)]}, log_x=True, mark=(3.9, "right")),
        Chart("many decades", {"l": [(1e-9, 1e-7), (1e9, 1e7)]}, log_x=True, log_y=True),
        Chart("one decade", {"l": [(5.0, 5.0)]}, log_x=True, log_y=True),
        Chart("spots", {"s": few, "t": [(0.5, 0.5)]}, scatter=True, diagonal=True, limits=(0.0, 10.0)),
        Chart("names", {f"a name of some length {n} {'x' * n * 3}": [(0.0, float(n)), (1.0, n + 1.0)]
                        for n in range(9)}),
        Chart("two names", {"the first of them": few, "and the second of them": few, "z": few}),
        Chart("twelve", {"spots on a line": line[:12]}),
        Chart("thirteen", {"the last spot": line[:13]}),
        Chart("nothing", {"n": [(NAN, 1.0), (1.0, math.inf)]}),
        *curves(epochs),
    ])  # fmt: skip


if __name__ == "__main__":
    picture().save(FILE)
