"""Which array feeds which input, and which is the target; guesses come with their reasons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxgrad.errors import DataError

TARGETS = ("target", "label", "labels", "y", "class", "targets")


@dataclass
class Matched:
    inputs: dict[str, np.ndarray]
    target: np.ndarray | None
    classes: list[str]  # names of text labels, by number
    notes: list[str]


def match(model: ir.Model, arrays: dict[str, np.ndarray], target: str, source: str) -> Matched:
    """Give every input of the model its array; what is left over is the target."""
    notes: list[str] = []
    arrays = dict(arrays)
    wanted = [v for v in model.graph.inputs if v.name not in model.graph.initializers]
    name = _target_name(arrays, target, {v.name for v in wanted}, source, notes)
    column = arrays.pop(name) if name else None
    classes: list[str] = []
    if column is not None and column.dtype.kind in "US":
        words, column = np.unique(column, return_inverse=True)
        classes = list(map(str, words))
        notes.append(
            f"target '{name}' is text: {len(classes)} classes, numbered in alphabetical order"
        )
    return Matched(_inputs(wanted, arrays, source, notes), column, classes, notes)


def _target_name(arrays, target: str, inputs: set[str], source: str, notes: list[str]) -> str:
    if target:
        if target not in arrays:
            raise DataError(
                f"{source} has no '{target}' for the target; it has {', '.join(arrays)}"
            )
        return target
    free = [name for name in arrays if name not in inputs]
    for name in TARGETS:
        if name in free:
            notes.append(f"target: '{name}', by its name")
            return name
    if len(free) == 1 and len(arrays) > 1:
        notes.append(f"target: '{free[0]}', the only array that is no input of the model")
        return free[0]
    if len(free) == len(arrays) and len(free) > 1:
        notes.append(f"target: '{free[-1]}', the last column")
        return free[-1]
    return ""


def _inputs(wanted: list[ir.Value], arrays, source: str, notes: list[str]) -> dict[str, np.ndarray]:
    if all(v.name in arrays for v in wanted):
        return {v.name: arrays[v.name] for v in wanted}
    if len(wanted) == 1:
        value = wanted[0]
        if len(arrays) == 1:
            name, array = next(iter(arrays.items()))
            notes.append(f"input '{value.name}': array '{name}', the only one left")
            return {value.name: array}
        columns = list(arrays.values())
        if columns and all(c.ndim == 1 and c.dtype.kind in "if" for c in columns):
            table = np.stack(columns, 1)
            notes.append(f"input '{value.name}': {len(columns)} columns side by side")
            return {value.name: _shaped(table, value)}
    missing = [v.name for v in wanted if v.name not in arrays]
    have = ", ".join(arrays) or "nothing else"
    raise DataError(
        f"{source} has no array for input {', '.join(map(repr, missing))} of the model; it has {have}"
    )


def _shaped(table: np.ndarray, value: ir.Value) -> np.ndarray:
    """Columns as the model's input wants them: flat numbers become an image where the sizes allow it."""
    dtype = value.dtype.numpy() if value.dtype else np.float32
    shape = list(value.shape)[1:] if value.shape is not None else None
    if shape and all(isinstance(d, int) for d in shape) and int(np.prod(shape)) == table.shape[1]:
        return table.reshape(len(table), *shape).astype(dtype)
    return table.astype(dtype)
