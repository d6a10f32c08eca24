"""Files to tables: .npz, .npy, CSV, JSONL, Parquet and folders of images. Bad rows are named."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from onnxgrad.errors import DataError
from onnxgrad.job.images import read_images
from onnxgrad.job.parquet import ParquetTable
from onnxgrad.job.table import Table, check_lengths, is_number


def read(path: str | Path) -> Table:
    """The dataset in a file or folder. Raises DataError with the line, row or key that is wrong."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file")
    reader = _reader(path)
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path} is empty, expected a dataset")
    return reader(path)


def _reader(path: Path) -> Callable[[Path], Table]:
    if path.is_dir():
        return _npy_folder if list(path.glob("*.npy")) else read_images
    readers = {
        ".npz": _npz,
        ".npy": _npy,
        ".csv": _csv,
        ".tsv": _csv,
        ".jsonl": _jsonl,
        ".ndjson": _jsonl,
        ".parquet": ParquetTable,
    }
    if path.suffix.lower() not in readers:
        known = ", ".join(readers)
        raise DataError(
            f"{path} has the ending '{path.suffix}', expected {known}, or a folder of images"
        )
    return readers[path.suffix.lower()]


# ---- NumPy


def _npz(path: Path) -> Table:
    try:
        with np.load(path, allow_pickle=False) as data:
            arrays = {name: data[name] for name in data.files}
    except Exception as error:
        raise DataError(f"{path} is no .npz file of plain arrays: {error}") from error
    return _table(path, arrays)


def _npy(path: Path) -> Table:
    return _table(path, {path.stem: _mapped(path)})


def _npy_folder(path: Path) -> Table:
    """One array per file, memory-mapped: larger than the memory is fine."""
    return _table(path, {file.stem: _mapped(file) for file in sorted(path.glob("*.npy"))})


def _mapped(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        raise DataError(f"{path} is no .npy file of a plain array: {error}") from error


def _table(path: Path, arrays: dict[str, np.ndarray]) -> Table:
    for name, array in arrays.items():
        if array.ndim == 0:
            raise DataError(f"{path}: '{name}' is a single number, expected one row per sample")
    check_lengths(str(path), arrays)
    return Table(str(path), arrays)


# ---- text


def _csv(path: Path) -> Table:
    """The first line names the columns; commas, semicolons or tabs lie between the fields."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            separator = max(",;\t", key=first.count)
            lines = list(csv.reader(file, delimiter=separator, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is no CSV text: {error}") from error
    rows = [(number, row) for number, row in enumerate(lines, 1) if row]
    names = _header(path, rows)
    for number, row in rows[1:]:
        if len(row) != len(names):
            raise DataError(
                f"{path}, line {number}: {len(row)} fields, expected {len(names)} as in the header"
            )
    numbers = [number for number, _ in rows[1:]]
    cells = list(zip(*(row for _, row in rows[1:]), strict=True))
    columns = {n: _column(path, n, numbers, cells[i]) for i, n in enumerate(names)}
    return Table(str(path), columns, where=lambda row: f"line {numbers[row]}", loose=True)


def _header(path: Path, rows: list[tuple[int, list[str]]]) -> list[str]:
    if len(rows) < 2:
        raise DataError(f"{path} has no rows below its header")
    names = [name.strip() for name in rows[0][1]]
    if all(is_number(name) for name in names):
        raise DataError(f"{path} begins with numbers, expected a first line that names the columns")
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise DataError(f"{path}: the header has the name {twice[0]!r} twice")
    return names


def _column(path: Path, name: str, lines: list[int], cells: tuple[str, ...]) -> np.ndarray:
    """Integers, else floats, else text."""
    texts = [text.strip() for text in cells]
    if "" in texts:
        raise DataError(f"{path}, line {lines[texts.index('')]}: column '{name}' is empty")
    for kind in (np.int64, np.float64):
        try:
            column = np.array(texts).astype(kind)
            return column if kind is np.int64 else column.astype(np.float32)
        except (ValueError, OverflowError):
            continue
    return np.array(texts)


def _jsonl(path: Path) -> Table:
    records: list[dict[str, Any]] = []
    numbers: list[int] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text: {error}") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            first = records[0] if records else None
            records.append(_record(f"{path}, line {number}", line, first))
            numbers.append(number)
    if not records:
        raise DataError(f"{path} has no rows")
    columns = {k: _stacked(path, k, numbers, [r[k] for r in records]) for k in records[0]}
    return Table(str(path), columns, where=lambda row: f"line {numbers[row]}", loose=True)


def _record(where: str, line: str, first: dict[str, Any] | None) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error
    if not isinstance(record, dict) or not record:
        raise DataError(f'{where}: expected an object, such as {{"x": [1, 2], "y": 0}}')
    if first is not None and set(record) != set(first):
        raise DataError(f"{where}: the keys are {sorted(record)}, expected {sorted(first)}")
    return record


def _stacked(path: Path, key: str, lines: list[int], values: list[Any]) -> np.ndarray:
    """Lists of equal shapes as one array."""
    arrays = []
    for line, value in zip(lines, values, strict=True):
        try:
            arrays.append(np.asarray(value))
        except ValueError:
            raise DataError(
                f"{path}, line {line}: '{key}' holds lists of different lengths"
            ) from None
        if arrays[-1].dtype == object:
            raise DataError(
                f"{path}, line {line}: '{key}' holds {value!r:.40}, expected numbers or text"
            )
        if arrays[-1].shape != arrays[0].shape:
            shape, expected = list(arrays[-1].shape), list(arrays[0].shape)
            raise DataError(f"{path}, line {line}: '{key}' has shape {shape}, expected {expected}")
    stacked = np.stack(arrays)
    return stacked.astype(np.float32) if stacked.dtype == np.float64 else stacked
