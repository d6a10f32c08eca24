"""`onnxgrad predict model.onnx --data x.npz -o predictions.npz`: what a model says."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np

from onnxgrad.cli.exit_codes import OK


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser("predict", help="run a model over a dataset and write its outputs")
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument(
        "--data", required=True, help="a dataset, as for train; a target in it is ignored"
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE.npz",
        help="where to write the outputs by name",
    )
    parser.add_argument("--target", default="", help="name of a column to leave out")
    parser.add_argument("--batch-size", type=int, default=256)
    return parser


def run(options: argparse.Namespace) -> int:
    import onnxgrad
    from onnxgrad.graph.save import write_bytes
    from onnxgrad.inspection.reading import read
    from onnxgrad.job import data
    from onnxgrad.job.matching import match

    _, prepared = read(options.model)
    inputs = match(prepared, data.read(options.data), options.target, options.data).inputs
    session = onnxgrad.session(options.model)
    names = [o.name for o in session.get_outputs()]
    types = {v.name: v.dtype.numpy() for v in prepared.graph.inputs if v.dtype is not None}
    rows = len(next(iter(inputs.values())))
    parts: list[list[np.ndarray]] = []
    for start in range(0, rows, options.batch_size):
        part = {
            n: np.asarray(a[start : start + options.batch_size], types.get(n))
            for n, a in inputs.items()
        }
        parts.append(session.run(names, part))
    outputs = {n: np.concatenate([p[i] for p in parts]) for i, n in enumerate(names)}
    buffer = io.BytesIO()
    np.savez(buffer, **outputs)
    write_bytes(Path(options.output), buffer.getvalue())
    shapes = ", ".join(f"{n} {list(a.shape)}" for n, a in outputs.items())
    print(f"wrote {options.output}: {shapes}")
    return OK
