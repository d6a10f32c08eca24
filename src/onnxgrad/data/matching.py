"""Which column feeds which input of a model, and which is the target; guesses come with their reasons."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from onnxgrad.data.columns import fills_missing, is_dates
from onnxgrad.data.forms import Forms
from onnxgrad.data.images import Images
from onnxgrad.data.matched import Feed, Matched
from onnxgrad.data.ragged import PaddedFeed, Ragged
from onnxgrad.data.raw_inputs import constant, fit, is_rate, second_size, tokens
from onnxgrad.data.sounds import Sounds
from onnxgrad.data.table import Table, is_number
from onnxgrad.data.texts import USUAL, takes_tokens
from onnxgrad.errors import DataError
from onnxgrad.files.paths import printable
from onnxgrad.notes import Note

TARGETS = ("target", "label", "labels", "y", "class", "targets", "tags", "ner_tags")


def check_inputs(model: ir.Model, table: Table, constants: Collection[str]) -> None:
    """Refuse a model with an input that has no type, or does not take one row per sample and is not a constant."""
    for value in given_inputs(model):
        if value.dtype is None or value.dtype == ir.DataType.UNDEFINED:
            raise DataError(
                f"input '{printable(value.name)}' of the model has no type, expected one"
            )
    wanted = [v for v in given_inputs(model) if v.name not in constants and not is_rate(v, table)]
    shapes = {v.name: None if v.shape is None else list(v.shape) for v in wanted}
    names = [str(s[0]) for s in shapes.values() if s and not isinstance(s[0], int)]
    for name, shape in shapes.items():
        later = shape and isinstance(shape[0], int) and any(str(d) in names for d in shape[1:])
        if shape == [] or later:
            what = "is a single number" if shape == [] else f"has its rows on another axis: {shape}"
            what = what.replace("SymbolicDim(", "").replace(")", "").replace("'", "")
            raise DataError(
                f"input '{name}' of the model {what}, and a dataset file has one row per sample for every input. "
                f"Give it one number with --constant {name}=0, or train it from Python, with batches of your own: "
                "onnxgrad.Trainer(...).fit(batches)"
            )


def match(
    model: ir.Model,
    table: Table,
    target: str = "",
    ignore: tuple[str, ...] = (),
    forms: Forms | None = None,
) -> Matched:
    """Give every input of the model its columns; a column that is left over is the target."""
    texts = forms.texts.columns if forms is not None else ()
    aim = find_target(model, table, target, ignore, texts=texts)
    return feed_inputs(model, table, aim, ignore, forms)


def feed_inputs(
    model: ir.Model, table: Table, aim: Matched, ignore: tuple[str, ...], forms: Forms | None = None
) -> Matched:
    """Give every input its columns, beside the target that was found."""
    wanted = given_inputs(model)
    matched = Matched(
        {}, dict(aim.targets), list(aim.classes), list(aim.notes), forms or Forms()
    )  # fmt: skip
    names = [n for n in table.columns if n not in ignore and n not in matched.target_columns]
    matched.inputs = _inputs(wanted, table, names, matched)
    _refuse_gaps(wanted, table, matched)
    return matched


def find_target(
    model: ir.Model,
    table: Table,
    target: str = "",
    ignore: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
    texts: tuple[str, ...] = (),
) -> Matched:
    """The target and the names of its classes, with no input matched yet.

    `target` is a column, several with commas, or columns by output: "box=x|y|w|h,score=label".
    Without it each of several `outputs` takes the columns called after it. `texts` are known to be inputs.
    """
    free = [n for n in table.columns if n not in ignore]
    matched = Matched({}, classes=list(table.classes))
    if target:
        matched.targets = _named_targets(target, table)
    elif len(outputs) > 1:
        matched.targets = {o: _called_after(o, free, table) for o in outputs}
        listed = "; ".join(f"'{o}': {', '.join(c)}" for o, c in matched.targets.items())
        text = f"targets by the names of the outputs: {listed}"
        matched.notes.append(
            Note("target", ", ".join(matched.targets), text, "--target names others")
        )
    else:
        open_to = [n for n in free if n not in texts]
        found = _guess_target(given_inputs(model), table, open_to, matched.notes, bool(texts))
        matched.targets = {"": (found,)} if found else {}
    for name in (*ignore, *matched.target_columns):
        if name not in table.columns:
            raise DataError(f"{table.source} has no column '{name}'; it has {_listed(table)}")
    for name in matched.target_columns:
        if name in table.gaps:
            raise DataError(table.gaps[name])
    _name_classes(table, matched)
    return matched


def _named_targets(text: str, table: Table) -> dict[str, tuple[str, ...]]:
    if text in table.columns:
        return {"": (text,)}
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if "=" not in text:
        return {"": tuple(parts)}
    found = {}
    for part in parts:
        output, _, columns = part.partition("=")
        found[output.strip()] = tuple(c.strip() for c in columns.split("|") if c.strip())
        if not found[output.strip()]:
            raise DataError(
                f"--target {part!r} names no column, expected output=column or output=a|b"
            )
    return found


def _called_after(output: str, free: list[str], table: Table) -> tuple[str, ...]:
    """The column that has an output's name, `_target` behind it, or `_0`, `_1` and so on."""
    for name in (output, f"{output}_target"):
        if name in free:
            return (name,)
    numbered = []
    while f"{output}_{len(numbered)}" in free:
        numbered.append(f"{output}_{len(numbered)}")
    if not numbered:
        raise DataError(
            f"{table.source} has no column for output '{output}'; it has {_listed(table)}. Name it with --target "
            f"{output}=COLUMN"
        )
    return tuple(numbered)


def given_inputs(model: ir.Model) -> list[ir.Value]:
    """The inputs that a batch gives: those that are not initializers."""
    return [v for v in model.graph.inputs if v.name not in model.graph.initializers]


def _refuse_gaps(wanted: list[ir.Value], table: Table, matched: Matched) -> None:
    """Refuse a column with gaps that feeds an input of a model that does not fill them."""
    values = {v.name: v for v in wanted}
    for name, feed in matched.inputs.items():
        if fills_missing(values[name]):
            table.filled.update(feed.columns)
    for column in matched.columns:
        if column in table.gaps and column not in table.filled:
            numbers = table.columns[column].dtype.kind != "U"
            hint = "; --missing mean or median fills such cells" if numbers else ""
            raise DataError(table.gaps[column] + hint)


def _listed(table: Table) -> str:
    names = list(table.columns)
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _target(name: str, because: str) -> Note:
    return Note("target", name, f"target: '{name}', {because}")


def _fed(value: ir.Value, how: str) -> Note:
    return Note("input", value.name, f"input '{value.name}': {how}")


def _guess_target(
    wanted: list[ir.Value], table: Table, names: list[str], notes: list[Note], texts: bool
) -> str:
    """`texts`: the columns of text are known, and not among `names`."""
    inputs = {v.name for v in wanted}
    free = [name for name in names if name not in inputs]
    for usual in TARGETS:
        for name in free:
            if name.lower() == usual:
                notes.append(_target(name, "by its name"))
                return name
    if len(free) == 1 and len(names) > 1:
        notes.append(_target(free[0], "the only one that is not an input of the model"))
        return free[0]
    if takes_tokens(wanted):
        return _target_of_text(table, free, notes, texts)
    side_by_side = len(free) == len(names) and len(free) > 1 and len(wanted) == 1
    if side_by_side and _width(wanted[0]) != len(free):
        notes.append(_target(free[-1], "the last column"))
        return free[-1]
    return ""


def _target_of_text(table: Table, free: list[str], notes: list[Note], known: bool) -> str:
    """The last column, where it is not the only one of text, nor called like one."""
    others = known or any(table.columns[n].dtype.kind == "U" for n in free[:-1])
    if not free or not others or free[-1].lower() in USUAL:
        return ""
    notes.append(_target(free[-1], "the last column"))
    return free[-1]


def _width(value: ir.Value) -> int | None:
    """How many numbers a row of an input has; None where the model leaves it open."""
    dims = None if value.shape is None else list(value.shape)[1:]
    if dims is None or not all(isinstance(d, int) for d in dims):
        return None
    return math.prod(dims)


def _inputs(
    wanted: list[ir.Value], table: Table, names: list[str], matched: Matched
) -> dict[str, Feed]:
    free = [v for v in wanted if v.name not in matched.forms.constants and not is_rate(v, table)]
    made = _from_columns(free, table, names, matched)
    for value in wanted:
        if value not in free:
            made[value.name] = constant(value, table, matched)
    return {v.name: made[v.name] for v in wanted}


def _from_columns(
    wanted: list[ir.Value], table: Table, names: list[str], matched: Matched
) -> dict[str, Feed]:
    if all(v.name in names for v in wanted):
        return {v.name: _one(v, v.name, table, matched) for v in wanted}
    if takes_tokens(wanted) and names:
        found = tokens(wanted, table, names, matched, _one)
        if found:
            return found
    if len(wanted) == 1:
        value = wanted[0]
        if len(names) == 1:
            matched.notes.append(_fed(value, f"'{names[0]}', the only one left"))
            return {value.name: _one(value, names[0], table, matched)}
        if names and all(table.columns[n].shape == () for n in names):
            matched.notes.append(_fed(value, f"{len(names)} columns side by side"))
            return {value.name: _side_by_side(value, names, table, matched)}
    missing = ", ".join(repr(v.name) for v in wanted if v.name not in names)
    have = ", ".join(names) or "nothing" + (" else" if matched.target else "")
    raise DataError(
        f"{table.source} has no column for input {missing} of the model; it has {have}. "
        "Name the columns as the inputs"
    )


def _one(value: ir.Value, name: str, table: Table, matched: Matched) -> Feed | PaddedFeed:
    column, notes = table.arrays.get(name), matched.notes
    dims = None if value.shape is None else [d if isinstance(d, int) else None for d in value.shape]
    if isinstance(column, (Images, Sounds)) and dims is not None:
        fit(column, value, dims, matched)
        return Feed([name], None, None)
    if isinstance(column, Ragged) and column.dtype.kind != "U":
        text = f"column '{name}' has rows of unequal lengths: filled up with 0"
        notes.append(Note("unequal", name, text))
        return PaddedFeed([name], np.dtype(value.dtype.numpy()), second_size(value))
    spec = table.columns[name]
    shape = _row_shape(value, spec.shape, notes)
    if value.dtype == ir.DataType.STRING:
        return Feed([name], shape, np.dtype(object))
    if spec.dtype.kind in "US":
        dates = _dates(value, [name], table, notes)
        return Feed([name], shape, np.dtype(value.dtype.numpy()), dates)
    return Feed([name], shape, _float(value, name, table, notes))


def _dates(value: ir.Value, names: list[str], table: Table, notes: list[Note]) -> frozenset[str]:
    """The columns of dates; other text is refused."""
    texts = [n for n in names if table.columns[n].dtype.kind in "US"]
    for name in texts:
        if not is_dates(table, name) or value.dtype.numpy().kind != "f":
            _refuse_text(value, name, table)
        text = f"column '{name}' holds dates: input '{value.name}' gets days since 1970-01-01"
        notes.append(Note("dates", name, text))
    return frozenset(texts)


def _row_shape(
    value: ir.Value, shape: tuple[int, ...], notes: list[Note]
) -> tuple[int, ...] | None:
    """A number becomes a row of one, and a flat row takes the model's shape, where sizes allow it."""
    dims = None if value.shape is None else [d if isinstance(d, int) else None for d in value.shape]
    if dims is None or len(dims) == len(shape) + 1:
        return None
    if shape == () and len(dims) == 2 and dims[1] in (1, None):
        return (1,)
    if len(shape) == 1 and _width(value) == shape[0]:
        wanted = " × ".join(map(str, dims[1:]))
        notes.append(_fed(value, f"rows of {shape[0]:,} numbers taken as {wanted}"))
        return tuple(dims[1:])
    return None


def _float(value: ir.Value, name: str, table: Table, notes: list[Note]) -> np.dtype | None:
    """Integers become floats where the model wants floats; where the format tells them apart, with a note."""
    dtype, given = np.dtype(value.dtype.numpy()), table.columns[name].dtype
    if dtype.kind != "f" or given.kind not in "iub":
        return None
    if not table.loose:
        notes.append(_fed(value, f"{given} used as {dtype}, unscaled"))
    return dtype


def _side_by_side(value: ir.Value, names: list[str], table: Table, matched: Matched) -> Feed:
    dates = _dates(value, names, table, matched.notes)
    target = matched.target
    width, count = _width(value), len(names)
    if width is not None and width != count:
        beside = f" beside the target '{target}'" if target else ""
        raise DataError(
            f"input '{value.name}' takes {width:,} numbers per row, and {table.source} has {count:,} columns{beside}: "
            f"{', '.join(names[:12])}{' …' if count > 12 else ''}. Leave some out with --ignore, or name the --target"
        )
    dims = [] if value.shape is None else [d if isinstance(d, int) else -1 for d in value.shape][1:]
    fits = dims.count(-1) <= 1 and count % max(1, math.prod(d for d in dims if d > 0)) == 0
    shape = tuple(dims) if dims and fits else None
    return Feed(names, shape, np.dtype(value.dtype.numpy()), dates)


def _refuse_text(value: ir.Value, name: str, table: Table) -> None:
    """Name the first cell that is not a number."""
    for row, cells in enumerate(table.head(name)):
        for text in np.ravel(cells):
            if not is_number(str(text)):
                raise DataError(
                    f"{table.source}, {table.where(row)}: column '{name}' holds {str(text)!r}, and input "
                    f"'{value.name}' takes numbers; correct it, or leave the column out with --ignore"
                )
    raise DataError(
        f"{table.source}: column '{name}' is text, and input '{value.name}' takes numbers"
    )


def _name_classes(table: Table, matched: Matched) -> None:
    columns = matched.target_columns
    if len(columns) == 1 and table.columns[columns[0]].dtype.kind in "US":
        words = [str(word) for word in table.words(matched.target)]
        listed = bool(table.classes) and set(words) <= set(table.classes)
        matched.classes = list(table.classes) if listed else words
        how = "numbered in alphabetical order"
        if matched.classes != sorted(matched.classes):
            how = "numbered as its file of classes lists them"
        text = f"target '{matched.target}' is text: {len(matched.classes)} classes, {how}"
        matched.notes.append(Note("classes", matched.target, text))
    elif columns != ["label"]:
        matched.classes = []
