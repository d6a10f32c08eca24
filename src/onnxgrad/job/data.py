"""Files to arrays: .npz, .npy, CSV, JSONL, Parquet and folders of images. Bad rows are named."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from onnxgrad.errors import DataError

IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"}


def read(path: str | Path) -> dict[str, np.ndarray]:
    """The columns or arrays of a dataset by name; all have the same number of rows."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such file")
    reader = _reader(path)
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    arrays = reader(path)
    counts = {name: len(a) for name, a in arrays.items() if np.ndim(a)}
    if not counts or max(counts.values()) == 0:
        raise DataError(f"{path} has no rows")
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{n} has {c}" for n, c in counts.items())
        raise DataError(f"{path}: the arrays differ in their number of rows: {listed}")
    return arrays


def _reader(path: Path):
    if path.is_dir():
        return _image_folder if not list(path.glob("*.npy")) else _npy_folder
    readers = {
        ".npz": _npz,
        ".npy": _npy,
        ".csv": _csv,
        ".jsonl": _jsonl,
        ".ndjson": _jsonl,
        ".parquet": _parquet,
    }
    if path.suffix.lower() not in readers:
        known = ", ".join(readers)
        raise DataError(
            f"{path} has the ending '{path.suffix}', expected {known}, or a folder of images"
        )
    return readers[path.suffix.lower()]


def _npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as data:
            return {name: data[name] for name in data.files}
    except Exception as error:
        raise DataError(f"{path} is no .npz file: {error}") from error


def _npy(path: Path) -> dict[str, np.ndarray]:
    try:
        return {path.stem: np.load(path, mmap_mode="r", allow_pickle=False)}
    except Exception as error:
        raise DataError(f"{path} is no .npy file: {error}") from error


def _npy_folder(path: Path) -> dict[str, np.ndarray]:
    """Memory-mapped: larger than the memory is fine."""
    arrays = {}
    for file in sorted(path.glob("*.npy")):
        arrays.update(_npy(file))
    return arrays


def _csv(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is no CSV text: {error}") from error
    rows = [(number, row) for number, row in enumerate(rows, 1) if row]
    if len(rows) < 2:
        raise DataError(f"{path} has no rows below its header")
    names = [name.strip() for name in rows[0][1]]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise DataError(f"{path}: the header names {', '.join(sorted(twice))} twice")
    for number, row in rows[1:]:
        if len(row) != len(names):
            raise DataError(
                f"{path}, line {number}: {len(row)} fields, expected {len(names)} as in the header"
            )
    return {
        name: _column(path, name, [(n, r[i]) for n, r in rows[1:]]) for i, name in enumerate(names)
    }


def _column(path: Path, name: str, cells: list[tuple[int, str]]) -> np.ndarray:
    """Integers, else floats, else text."""
    texts = [text.strip() for _, text in cells]
    for number, text in zip((n for n, _ in cells), texts, strict=True):
        if text == "":
            raise DataError(f"{path}, line {number}: column '{name}' is empty")
    for kind in (np.int64, np.float64):
        try:
            column = np.array(texts).astype(kind)
            return column if kind is np.int64 else column.astype(np.float32)
        except (ValueError, OverflowError):
            continue
    return np.array(texts)


def _jsonl(path: Path) -> dict[str, np.ndarray]:
    records: list[dict[str, Any]] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no text: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
        if not isinstance(record, dict):
            raise DataError(
                f'{path}, line {number}: expected an object, such as {{"x": [1, 2], "y": 0}}'
            )
        if records and set(record) != set(records[0]):
            raise DataError(
                f"{path}, line {number}: the keys are {sorted(record)}, expected {sorted(records[0])}"
            )
        records.append(record)
    if not records:
        raise DataError(f"{path} has no rows")
    return {key: _stacked(path, key, [r[key] for r in records]) for key in records[0]}


def _stacked(path: Path, key: str, values: list[Any]) -> np.ndarray:
    arrays = [np.asarray(v) for v in values]
    for row, array in enumerate(arrays):
        if array.shape != arrays[0].shape or array.dtype == object:
            shape, expected = list(array.shape), list(arrays[0].shape)
            raise DataError(f"{path}, row {row}: '{key}' has shape {shape}, expected {expected}")
    stacked = np.stack(arrays)
    return stacked.astype(np.float32) if stacked.dtype == np.float64 else stacked


def _parquet(path: Path) -> dict[str, np.ndarray]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            f"{path}: reading Parquet needs pyarrow: pip install onnxgrad[parquet]"
        ) from None
    table = parquet.read_table(path)
    return {name: _stacked(path, name, table[name].to_pylist()) for name in table.column_names}


def _image_folder(path: Path) -> dict[str, np.ndarray]:
    """One folder per class; images as float32 in 0..1, channels first."""
    classes = sorted(p for p in path.iterdir() if p.is_dir())
    files = [
        (f, i)
        for i, c in enumerate(classes)
        for f in sorted(c.iterdir())
        if f.suffix.lower() in IMAGES
    ]
    if not files:
        raise DataError(f"{path} holds no images in folders by class, such as {path}/cat/1.png")
    try:
        from PIL import Image
    except ImportError:
        raise DataError(
            f"{path}: reading images needs Pillow: pip install onnxgrad[images]"
        ) from None
    images = []
    for file, _ in files:
        with Image.open(file) as image:
            pixels = (
                np.asarray(image.convert("L" if image.mode == "L" else "RGB"), np.float32) / 255
            )
        images.append(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))
        if images[-1].shape != images[0].shape:
            raise DataError(
                f"{file} has shape {list(images[-1].shape)}, expected {list(images[0].shape)} as the first"
            )
    return {"image": np.stack(images), "label": np.array([label for _, label in files])}
