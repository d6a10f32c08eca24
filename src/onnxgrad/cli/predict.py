"""`onnxgrad predict model.onnx --data x.csv -o predictions.csv`: what a model says."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import onnxgrad
from onnxgrad.cli import generate
from onnxgrad.cli.arguments import at_least_one
from onnxgrad.cli.exit_codes import OK
from onnxgrad.cli.texts import plain
from onnxgrad.data import read as data
from onnxgrad.errors import ConfigError, DataError
from onnxgrad.files.arrays import npz_bytes
from onnxgrad.files.write import check_target, write_bytes
from onnxgrad.inspection.probe import first_load
from onnxgrad.job.config import INPUT_FLAGS, add_flags, input_flags
from onnxgrad.job.texts import split_names

if TYPE_CHECKING:
    from onnxgrad.job.predictions import Predictions


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
        help="where to write: .npz with the outputs by name, .csv with one row per row of the data and the names "
        "of files and classes, or .jsonl for generated text",
    )
    parser.add_argument("--target", default="", help="name of a column to leave out")
    parser.add_argument(
        "--ignore", default="", help="more columns to leave out, separated by commas"
    )
    add_flags(parser, only=set(INPUT_FLAGS) - {"tokenizer"})
    parser.add_argument("--batch-size", type=at_least_one, default=256, metavar="N")
    generate.add_flags(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    from onnxgrad.data.matching import check_inputs, match
    from onnxgrad.files.models import ModelFile, data_files
    from onnxgrad.inspection.reading import read
    from onnxgrad.job.inputs import check_flags, read_forms
    from onnxgrad.job.predictions import predict
    from onnxgrad.job.prepare import known_classes

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
    forms = read_forms(model, original, input_flags(options))
    with first_load(options.model):
        table = data.read(options.data)
        check_inputs(prepared, table, forms.constants)
        matched = match(prepared, table, options.target, split_names(options.ignore), forms)
        check_flags(input_flags(options), matched)
    session = onnxgrad.session(model)
    classes, _ = known_classes(model, original)
    found = predict(session, prepared, table, matched, options.batch_size, classes)
    write_bytes(path, as_csv(found) if path.suffix == ".csv" else as_npz(found))
    shapes = ", ".join(f"{n} {list(a.shape)}" for n, a in found.outputs.items())
    print(plain(f"wrote {options.output}: {shapes}"))
    return OK


def as_npz(found: Predictions) -> bytes:
    more = {"file": np.array(found.names)} if found.names else {}
    if found.answers:
        more[found.title] = np.array(found.answers)
    return npz_bytes({**more, **found.outputs})


def as_csv(found: Predictions) -> bytes:
    """A column per number; first the names of files, and the class where the model knows the names of its classes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = dict(_columns(found))
    writer.writerow([harmless(name) for name in columns])
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def harmless(cell: str) -> str:
    """A text that a spreadsheet would run as a formula, with an apostrophe before it."""
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def _columns(found: Predictions) -> Iterator[tuple[str, Sequence]]:
    if found.names:
        yield "file", [harmless(name) for name in found.names]
    if found.answers:
        yield found.title, [harmless(answer) for answer in found.answers]
    rows = len(found.names or found.answers or next(iter(found.outputs.values())))
    for name, array in found.outputs.items():
        if len(array) != rows or (found.title == "tags" and array.ndim > 2):
            continue  # no number for each row: .npz has it
        flat = array.reshape(len(array), -1)
        for number in range(flat.shape[1]):
            yield name if flat.shape[1] == 1 else f"{name}_{number}", flat[:, number]
