"""`onnxgrad predict model.onnx --data x.csv -o predictions.csv`: what a model says."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import onnxgrad
from onnxgrad.cli import generate
from onnxgrad.cli.arguments import at_least_one
from onnxgrad.cli.exit_codes import OK
from onnxgrad.data import read as data
from onnxgrad.errors import ConfigError, DataError
from onnxgrad.files.write import check_target, write_bytes
from onnxgrad.inspection.probe import first_load
from onnxgrad.job.texts import split_names


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser("predict", help="run a model over a dataset and write its outputs")
    parser.add_argument("model", help="an ONNX file, or a folder that train --lora wrote")
    parser.add_argument(
        "--data", default="", help="a dataset, as for train; a target in it is ignored"
    )
    parser.add_argument(
        "-o",
        "--output",
        default="",
        metavar="FILE",
        help="where to write: .npz with the outputs by name, .csv with one row per row of the data, or .jsonl "
        "for generated text",
    )
    parser.add_argument("--target", default="", help="name of a column to leave out")
    parser.add_argument("--ignore", default="", help="more columns to leave out, with commas")
    parser.add_argument("--batch-size", type=at_least_one, default=256, metavar="N")
    generate.add_flags(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    from onnxgrad.data.matching import match
    from onnxgrad.files.models import ModelFile, data_files
    from onnxgrad.inspection.reading import read
    from onnxgrad.job.prepare import stored_classes

    file, adapter = generate.model_and_adapter(options)
    if generate.is_wanted(options, file):
        generate.generate_lines(options, file, adapter)
        return OK
    for name in ("data", "output"):
        if not getattr(options, name):
            raise ConfigError(f"predict needs --{name}, or --prompt for a language model")
    path = Path(options.output)
    if path.suffix not in (".npz", ".csv"):
        raise DataError(f"-o {path} ends in '{path.suffix}', expected .npz or .csv")
    model = ModelFile.of(options.model)
    check_target(path, model, options.data, *data_files(model))
    original, prepared = read(model)
    with first_load(options.model):
        table = data.read(options.data)
        matched = match(prepared, table, options.target, split_names(options.ignore))
    outputs = predict(model, prepared, table, matched, options.batch_size)
    classes = stored_classes(original)
    content = as_csv(outputs, classes) if path.suffix == ".csv" else as_npz(outputs)
    write_bytes(path, content)
    shapes = ", ".join(f"{n} {list(a.shape)}" for n, a in outputs.items())
    print(f"wrote {options.output}: {shapes}")
    return OK


def predict(path: str, model, table, matched, batch_size: int) -> dict[str, np.ndarray]:
    """Every output for every row; a model with a fixed batch gets its last one filled up."""
    from onnxgrad.data.batches import Batches
    from onnxgrad.job.prepare import Prepared
    from onnxgrad.train.step.check import Checker, of_input

    session = onnxgrad.session(path)
    names = [o.name for o in session.get_outputs()]
    size, fixed = Prepared(path, model, table, matched, None, []).batch_size(batch_size)
    check = Checker(of_input(v) for v in model.graph.inputs if v.name in matched.inputs)
    parts: list[list[np.ndarray]] = []
    for batch in Batches(table, matched, [], size).epoch(0):
        count = len(batch.rows)
        if fixed:
            filled = {n: _filled(a, size) for n, a in batch.arrays.items()}
            batch = type(batch)(filled, batch.number, _filled(batch.rows, size), batch.place)
        parts.append([r[:count] for r in session.run(names, check(batch))])
    return {n: np.concatenate([p[i] for p in parts]) for i, n in enumerate(names)}


def _filled(array: np.ndarray, size: int) -> np.ndarray:
    """Repeat the last row up to `size` rows."""
    return np.concatenate([array, np.repeat(array[-1:], size - len(array), 0)])


def as_npz(outputs: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **outputs)
    return buffer.getvalue()


def as_csv(outputs: dict[str, np.ndarray], classes: list[str]) -> bytes:
    """A column per number; a column `class` first, where the model knows the names of its classes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = dict(_columns(outputs, classes))
    writer.writerow([harmless(name) for name in columns])
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def harmless(cell: str) -> str:
    """A text that a spreadsheet would run as a formula, with an apostrophe before it."""
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def _columns(
    outputs: dict[str, np.ndarray], classes: list[str]
) -> Iterator[tuple[str, np.ndarray]]:
    first = next(iter(outputs.values()))
    if classes and first.ndim == 2 and first.shape[1] == len(classes):
        yield "class", np.array([harmless(c) for c in classes])[first.argmax(1)]
    for name, array in outputs.items():
        flat = array.reshape(len(array), -1)
        for number in range(flat.shape[1]):
            yield name if flat.shape[1] == 1 else f"{name}_{number}", flat[:, number]
