"""Pictures and sounds in folders, or named in a column of a table, as columns that a model can be fed from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onnxgrad.data import pixels, sounds
from onnxgrad.data.images import Images
from onnxgrad.data.sounds import Sounds
from onnxgrad.data.table import Column, Table
from onnxgrad.errors import DataError
from onnxgrad.files.text import read_text

KINDS = {"image": (pixels.ENDINGS, Images), "sound": (sounds.ENDINGS, Sounds)}
ORDERS = ("classes.txt", "labels.txt")  # files beside the folders that say their order
PARTS = {"train", "training", "val", "valid", "validation", "test", "testing", "eval"}


def read_folder(path: Path) -> Table:
    """Columns `image` or `sound`, and `label`, the name of the folder; without folders, files alone."""
    inner = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    labelled = [(file, folder.name) for folder in inner for file in sorted(folder.rglob("*"))]
    kind, files = _of_one_kind(path, labelled)
    classes = _order(path, [folder.name for folder in inner])
    if not files:
        kind, files = _of_one_kind(path, [(file, "") for file in sorted(path.iterdir())])
        classes = []
    if not files:
        raise DataError(
            f"{path} holds no images in folders by class, such as {path}/cat/1.png, and no sounds"
        )
    if classes and {c.lower() for c in classes} <= PARTS:
        listed = " and ".join(classes[:3])
        raise DataError(
            f"{path} holds the folders {listed}, which are parts of a dataset, not classes: --data "
            f"{path / classes[0]}"
        )
    paths = [file for file, _ in files]
    arrays = {kind: KINDS[kind][1](paths)}
    if classes:
        arrays["label"] = np.array([label for _, label in files])
    names = [str(file.relative_to(path)) for file in paths]
    return Table(
        str(path), arrays, where=lambda row: str(paths[row]), classes=classes, names=names
    )  # fmt: skip


def _of_one_kind(path: Path, files: list[tuple[Path, str]]) -> tuple[str, list[tuple[Path, str]]]:
    """The files that are pictures or sounds, whichever there are; both is refused."""
    found = {
        kind: [
            (file, label)
            for file, label in files
            if file.suffix.lower() in endings and not file.name.startswith(".") and file.is_file()
        ]
        for kind, (endings, _) in KINDS.items()
    }
    if all(found.values()):
        raise DataError(f"{path} holds images and sounds, expected one kind")
    kind = next((kind for kind, listed in found.items() if listed), "image")
    return kind, found[kind]


def _order(path: Path, names: list[str]) -> list[str]:
    """The classes: the folders in alphabetical order, or as a file beside them lists them."""
    file = next((path / name for name in ORDERS if (path / name).is_file()), None)
    if file is None:
        return names
    listed = [line.strip() for line in read_text(file).splitlines() if line.strip()]
    strange = [name for name in names if name not in listed]
    if strange:
        raise DataError(
            f"{file} does not list the class {strange[0]!r}, and there is such a folder"
        )
    if len(set(listed)) < len(listed):
        twice = next(name for name in listed if listed.count(name) > 1)
        raise DataError(f"{file} lists the class {twice!r} twice")
    return listed


def with_files(table: Table, folder: Path) -> Table:
    """Turn columns that name pictures or sounds into columns of them: `path,label` lines, seen from their folder."""
    for name, array in list(table.arrays.items()):
        kind = _named_kind(array)
        if kind is None:
            continue
        paths = [folder / str(text) for text in array]
        missing = next((row for row, file in enumerate(paths) if not file.is_file()), None)
        if missing is not None:
            where = table.where(missing)
            raise DataError(
                f"{table.source}, {where}: column '{name}' names {str(array[missing])!r}, and there is no "
                f"file {paths[missing]}"
            )
        column = KINDS[kind][1](paths)
        table.arrays[name] = column
        table.columns[name] = Column(column.dtype, tuple(column.shape[1:]))
        table.names = table.names or [str(text) for text in array]
    return table


def _named_kind(array: np.ndarray) -> str | None:
    """The kind of the files that every cell of a column names."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "U" or array.ndim != 1:
        return None
    for kind, (endings, _) in KINDS.items():
        if all(str(text).lower().endswith(tuple(endings)) for text in array):
            return kind
    return None
