"""Files to tables: .npz, .npy, CSV, JSONL, Parquet and folders of images or sounds. Bad rows are named."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from onnxgrad.data.decimals import Decimals
from onnxgrad.data.folders import read_folder, with_files
from onnxgrad.data.parquet import ParquetTable
from onnxgrad.data.ragged import Ragged
from onnxgrad.data.table import Table, check_lengths, is_number
from onnxgrad.errors import DataError, FileError, LimitError
from onnxgrad.files import limits
from onnxgrad.files.arrays import check_unpacked, map_npy, read_npz, text_array
from onnxgrad.files.paths import regular_file
from onnxgrad.files.text import json_lines, open_text, parse_record

CSV_ROWS = 20_000  # of one chunk
GAPS = ("", "NA", "N/A", "null", "NULL", "?")  # cells of a column of numbers that hold none


def read(path: str | Path) -> Table:
    """The dataset in a file or folder. Raises DataError with the line, row or key that is wrong."""
    path = Path(path)
    try:
        reader = _reader(path)
        if not path.is_dir() and regular_file(path, "a dataset").st_size == 0:
            raise DataError(f"{path} is empty, expected a dataset")
        return reader(path)
    except LimitError:
        raise
    except FileError as error:
        raise DataError(str(error)) from error


def _reader(path: Path) -> Callable[[Path], Table]:
    if path.is_dir():
        return _npy_folder if list(path.glob("*.npy")) else read_folder
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
            f"{path} has the ending '{path.suffix}', expected {known}, or a folder of images or sounds"
        )
    return readers[path.suffix.lower()]


# ---- NumPy


def _npz(path: Path) -> Table:
    return _table(path, read_npz(path))


def _npy(path: Path) -> Table:
    return _table(path, {path.stem: map_npy(path)})


def _npy_folder(path: Path) -> Table:
    """One array per file, memory-mapped: larger than the memory is fine."""
    return _table(path, {file.stem: map_npy(file) for file in sorted(path.glob("*.npy"))})


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
        return _csv_table(path)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not CSV text: {error}") from error


def _csv_table(path: Path) -> Table:
    """Numbers are converted chunk by chunk: as text they would take ten times the memory."""
    lines: list[int] = []
    delimiter = _delimiter(path)
    decimals = Decimals(str(path), delimiter, _piece)
    chunks = _csv_chunks(path, delimiter, lines)
    names = _header(path, next(chunks))
    pieces: dict[str, list[np.ndarray]] = {name: [] for name in names}
    gaps: dict[str, str] = {}
    size = path.stat().st_size
    for number, rows in enumerate(chunks):
        if number == 0:
            _check_header(path, names, rows)
        _check_widths(path, lines[-len(rows) :], rows, len(names))
        for name, cells in zip(names, zip(*rows, strict=True), strict=True):
            texts = text_array([text.strip() for text in cells], f"{path}: column '{name}'", size)
            pieces[name].append(decimals(name, texts))
            _note_gap(path, name, lines[-len(rows) :], texts, pieces[name][-1], gaps)
    if not lines:
        raise DataError(f"{path} has no rows below its header")
    words = {n for n, parts in pieces.items() if len({p.dtype.kind in "US" for p in parts}) > 1}
    if words:  # numbers here, text there: all of it is text, as it stands in the file
        rest = _csv_chunks(path, delimiter, [])
        next(rest)
        for name in words:
            pieces[name] = []
        for rows in rest:
            for name in words:
                pieces[name].append(np.array([row[names.index(name)].strip() for row in rows]))
    columns = {}
    for name, parts in pieces.items():
        taken = max(part.itemsize for part in parts) * len(lines)
        check_unpacked(taken, size, f"{path}: column '{name}'")
        columns[name] = _column(parts)
    where = lambda row: f"line {lines[row]}"  # noqa: E731
    table = Table(str(path), columns, where=where, loose=True, gaps=gaps, notes=decimals.notes())
    return with_files(table, path.parent)


def _delimiter(path: Path) -> str:
    with open_text(path) as file:
        return max(",;\t", key=file.readline().count)


def _csv_chunks(path: Path, delimiter: str, lines: list[int]) -> Iterator[list[list[str]]]:
    """Yield the header, as a chunk of one row, then chunks of rows; note their lines in `lines`."""
    with open_text(path) as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        rows = (row for row in reader if row)
        yield list(islice(rows, 1))
        while True:
            chunk = []
            for row in islice(rows, CSV_ROWS):
                chunk.append(row)
                lines.append(reader.line_num)
            if not chunk:
                return
            yield chunk


def _header(path: Path, rows: list[list[str]]) -> list[str]:
    if not rows:
        raise DataError(f"{path} has no rows below its header")
    names = [name.strip() for name in rows[0]]
    if all(is_number(name) for name in names):
        raise DataError(f"{path} begins with numbers, expected a first line that names the columns")
    limits.check("columns", len(names), f"{path} has {len(names):,} columns")
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise DataError(f"{path}: the header has the name {twice[0]!r} twice")
    return names


def _check_header(path: Path, names: list[str], rows: list[list[str]]) -> None:
    """Refuse a first line that looks like the others: it would be lost, and with it a row."""
    same = [i for i, name in enumerate(names) if is_number(name)]
    same += [
        i
        for i, name in enumerate(names)
        if sum(name == r[i].strip() for r in rows if len(r) > i) > 1
    ]
    numbers = [i for i in same if all(is_number(r[i].strip()) for r in rows[:100] if len(r) > i)]
    recurring = [i for i in same if i not in numbers and not is_number(names[i])]
    if recurring or (numbers and (len(same) == len(names) or _is_a_row(names, numbers, rows))):
        shown = names[recurring[0] if recurring else numbers[0]]
        raise DataError(
            f"{path} seems to have no header: {shown!r} of its first line is a value like those below it, expected "
            "a first line that names the columns"
        )


def _is_a_row(names: list[str], numbers: list[int], rows: list[list[str]]) -> bool:
    """Whether the numbers among the names lie among those below them: a row whose class comes only once.

    Integers that count up (0, 1, 2 of a data frame, years) are names.
    """
    found = [float(names[i]) for i in numbers]
    if all(x.is_integer() and x == found[0] + k for k, x in enumerate(found)):
        return False
    columns = [[float(r[i]) for r in rows[:100] if len(r) > i] for i in numbers]
    return all(min(c) <= x <= max(c) for x, c in zip(found, columns, strict=True))


def _check_widths(path: Path, lines: list[int], rows: list[list[str]], width: int) -> None:
    for line, row in zip(lines, rows, strict=True):
        if len(row) != width:
            raise DataError(
                f"{path}, line {line}: {len(row)} fields, expected {width} as in the header"
            )


def _piece(texts: np.ndarray) -> np.ndarray:
    """Integers, else floats with NaN for gaps, else text."""
    for kind in (np.int64, np.float64):
        try:
            return texts.astype(kind)
        except (ValueError, OverflowError):
            continue
    empty = np.isin(texts, GAPS)
    numbers = np.full(len(texts), np.nan)
    try:
        numbers[~empty] = texts[~empty].astype(np.float64)
    except ValueError:
        return texts
    return numbers


def _note_gap(path: Path, name: str, lines: list[int], texts, piece, gaps: dict[str, str]) -> None:
    """Keep a sentence about the first cell of a column that holds nothing."""
    if name in gaps or piece.dtype.kind == "i":
        return
    empty = np.flatnonzero(texts == "" if piece.dtype.kind == "U" else np.isin(texts, GAPS))
    if empty.size:
        text = str(texts[empty[0]])
        what = f"holds {text!r}" if text else "is empty"
        gaps[name] = f"{path}, line {lines[empty[0]]}: column '{name}' {what}"


def _column(pieces: list[np.ndarray]) -> np.ndarray:
    joined = np.concatenate(pieces)
    return joined.astype(np.float32) if joined.dtype == np.float64 else joined


def _jsonl(path: Path) -> Table:
    records: list[dict[str, Any]] = []
    numbers: list[int] = []
    for number, line in json_lines(path):
        first = records[0] if records else None
        records.append(_record(f"{path}, line {number}", line, first))
        numbers.append(number)
    if not records:
        raise DataError(f"{path} has no rows")
    gaps: dict[str, str] = {}
    columns = {}
    for key in records[0]:
        values = _without_null(path, key, numbers, [r[key] for r in records], gaps)
        columns[key] = _stacked(path, key, numbers, values)
    where = lambda row: f"line {numbers[row]}"  # noqa: E731
    return with_files(Table(str(path), columns, where=where, loose=True, gaps=gaps), path.parent)


def _without_null(path: Path, key: str, lines: list[int], values: list[Any], gaps) -> list[Any]:
    """NaN among numbers and an empty text among texts, where JSON says null."""
    if None not in values:
        return values
    first = next((v for v in values if v is not None), 0.0)
    if isinstance(first, (list, dict)):
        return values
    gaps[key] = f"{path}, line {lines[values.index(None)]}: '{key}' is null"
    gap = "" if isinstance(first, str) else float("nan")
    return [gap if v is None else v for v in values]


def _record(where: str, line: str, first: dict[str, Any] | None) -> dict[str, Any]:
    try:
        record = parse_record(line)
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error
    if not isinstance(record, dict) or not record:
        raise DataError(f'{where}: expected an object, such as {{"x": [1, 2], "y": 0}}')
    limits.check("columns", len(record), f"{where}: it has {len(record):,} keys")
    if first is not None and set(record) != set(first):
        raise DataError(f"{where}: the keys are {sorted(record)}, expected {sorted(first)}")
    return record


def _one(value: Any, who: str, size: int) -> np.ndarray:
    """What one line holds under a key; a list of words is as wide as the longest of them."""
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return text_array(value, who, size)
    return np.asarray(value)


def _stacked(path: Path, key: str, lines: list[int], values: list[Any]) -> np.ndarray | Ragged:
    """Lists of equal shapes as one array; where only their lengths differ, as unequal rows."""
    arrays = []
    size = path.stat().st_size
    for line, value in zip(lines, values, strict=True):
        try:
            arrays.append(_one(value, f"{path}, line {line}: '{key}'", size))
        except LimitError:
            raise
        except ValueError:
            raise DataError(
                f"{path}, line {line}: '{key}' holds lists of different lengths"
            ) from None
        if arrays[-1].dtype == object:
            raise DataError(
                f"{path}, line {line}: '{key}' holds {value!r:.40}, expected numbers or text"
            )
        rank, rest = arrays[0].ndim, arrays[0].shape[1:]
        if arrays[-1].ndim != rank or arrays[-1].shape[1:] != rest:
            shape, expected = list(arrays[-1].shape), list(arrays[0].shape)
            raise DataError(f"{path}, line {line}: '{key}' has shape {shape}, expected {expected}")
        if arrays[-1].size == 0:
            raise DataError(f"{path}, line {line}: '{key}' is an empty list")
    kinds = {a.dtype.kind in "US" for a in arrays}
    if len(kinds) > 1 and arrays[0].ndim:
        raise DataError(
            f"{path}: '{key}' holds lists of numbers in some lines and of text in others"
        )
    if len({a.shape for a in arrays}) > 1:
        return Ragged([a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays])
    taken = max(a.nbytes for a in arrays) * len(arrays)
    check_unpacked(taken, size, f"{path}: '{key}'")
    stacked = np.stack(arrays)
    with np.errstate(over="ignore"):  # a number beyond float32 is infinity, which is said later
        return stacked.astype(np.float32) if stacked.dtype == np.float64 else stacked
