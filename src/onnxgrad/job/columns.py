"""Tables in front of a model: what the flags and the columns ask for, as a change of the model."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxgrad.data.columns import (
    ColumnSpec,
    Statistics,
    column_specs,
    far_apart,
    fills_missing,
    statistics,
)
from onnxgrad.data.matching import Feed, Matched, given_inputs
from onnxgrad.data.table import Table
from onnxgrad.data.texts import takes_tokens
from onnxgrad.errors import ConfigError, DataError
from onnxgrad.job.config import Config
from onnxgrad.job.texts import split_names
from onnxgrad.model.change import Change
from onnxgrad.model.table_input import Columns, TableInput
from onnxgrad.notes import Note

FILLS = ("mean", "median")


class TableStage:
    """What stands in front of the input of a model that tables feed; `notes` say what was done."""

    def __init__(self, model: ir.Model, table: Table, aim: Matched, ignore, config: Config):
        self.model, self.table, self.aim, self.ignore = model, table, aim, ignore
        self.config = config
        self.notes: list[Note] = []
        self.categories = split_names(config.categories)
        for name in self.categories:
            if name not in table.columns:
                raise ConfigError(f"--categories: {table.source} has no column '{name}'")
        if config.missing not in ("", *FILLS):
            raise ConfigError(f"--missing is {config.missing!r}, expected mean or median")

    def changes(self, rows: np.ndarray | None) -> list[Change]:
        """The changes, with statistics of the rows to train on."""
        wanted = given_inputs(self.model)
        specs = self._columns(wanted)
        asked = self.config.standardize or self.config.missing
        encoded = specs is not None and any(spec.words for spec in specs)
        if not encoded and not asked:
            self._hint(wanted, specs, rows)
            return []
        if encoded or specs is not None:
            return [self._in_columns(wanted[0], specs, rows, encoded)]
        return [self._prepared(value, rows) for value in self._floats(wanted)]

    # ---- several columns side by side ----------------------------------------------------------

    def _columns(self, wanted: list[ir.Value]) -> list[ColumnSpec] | None:
        """The columns that stand side by side before the only input; None where arrays feed it."""
        names = [
            n
            for n in self.table.columns
            if n not in self.ignore and n not in self.aim.target_columns
        ]
        if len(wanted) != 1 or wanted[0].name in names or len(names) < 2:
            return None
        if takes_tokens(wanted):
            return None
        if any(self.table.columns[n].shape != () for n in names):
            return None
        return column_specs(self.table, names, self.categories)

    def _in_columns(
        self, value: ir.Value, specs: list[ColumnSpec], rows, encoded: bool
    ) -> TableInput:
        names = [spec.name for spec in specs]
        width = sum(spec.width for spec in specs)
        self._check_width(value, specs, width)
        numbers = [spec.name for spec in specs if not spec.words]
        if self.config.missing:
            self.table.filled.update(numbers)
        places = np.concatenate([[spec.words == ()] * spec.width for spec in specs])
        found = None
        if numbers and (self.config.standardize or self.config.missing):
            found = statistics(self.table, self._feed(numbers), rows)
        self._say(numbers, found)
        columns = None
        if encoded:
            columns = Columns(names, [spec.words for spec in specs])
            self._say_words(value, specs)
        return TableInput(value.name, columns=columns, **self._spread(found, places))

    def _feed(self, names: list[str]) -> Feed:
        texts = {n for n in names if self.table.columns[n].dtype.kind == "U"}  # dates by now
        return Feed(names, (len(names),), np.dtype(np.float64), frozenset(texts))

    def _check_width(self, value: ir.Value, specs: list[ColumnSpec], width: int) -> None:
        dims = None if value.shape is None else list(value.shape)
        takes = dims[1] if dims is not None and len(dims) == 2 else None
        words = [f"'{s.name}' with {s.width} words" for s in specs if s.words]
        if words and isinstance(takes, int) and takes != width:
            raise DataError(
                f"input '{value.name}' takes {takes:,} numbers per row, and the columns of {self.table.source} make "
                f"{width:,}: {len(specs) - len(words)} of numbers, and {', '.join(words[:6])}. Leave some out with "
                "--ignore, or make the model's first layer as wide"
            )

    def _spread(self, found: Statistics | None, places: np.ndarray) -> dict[str, np.ndarray]:
        """Statistics at the places of numbers; words stay 0 and 1."""
        made: dict[str, np.ndarray] = {}
        if found is None:
            return made

        def at(array: np.ndarray, rest: float) -> np.ndarray:
            whole = np.full(len(places), rest)
            whole[places] = array
            return whole

        if self.config.missing:
            fill = found.mean if self.config.missing == "mean" else found.median
            made["fill"] = at(fill, 0.0)
        if self.config.standardize:
            made["mean"] = at(found.mean, 0.0)
            made["deviation"] = at(_at_least(found.deviation), 1.0)
        return made

    # ---- an array as it is --------------------------------------------------------------------

    def _floats(self, wanted: list[ir.Value]) -> list[ir.Value]:
        floats = [v for v in wanted if v.dtype.numpy().kind == "f"]
        if not floats:
            flag = "--standardize" if self.config.standardize else "--missing"
            raise ConfigError(f"{flag} is for numbers, and no input of the model takes floats")
        return floats

    def _prepared(self, value: ir.Value, rows: np.ndarray | None) -> TableInput:
        column = value.name if value.name in self.table.columns else None
        if column is None:  # the only one left
            names = [n for n in self.table.columns if n not in self.ignore]
            column = next((n for n in names if n not in self.aim.target_columns), "")
        if column not in self.table.columns or self.table.columns[column].dtype.kind not in "iufb":
            raise ConfigError(f"--standardize: input '{value.name}' is not fed by numbers")
        if self.config.missing:
            self.table.filled.add(column)
        each = value.shape is not None and len(value.shape) == 2
        found = statistics(self.table, Feed([column], None, np.dtype(np.float64)), rows, each)
        self._say([column], found)
        if not each:
            text = f"input '{value.name}': one mean and deviation for all its numbers"
            self.notes.append(Note("standardised", value.name, text))
        whole = np.ones(len(found.mean), bool)
        return TableInput(value.name, **self._spread(found, whole))

    # ---- what is said -------------------------------------------------------------------------

    def _say(self, names: list[str], found: Statistics | None) -> None:
        if found is None:
            return
        if self.config.standardize:
            text = (
                "standardised by mean and deviation of the training rows, inside the written model"
            )
            self.notes.append(Note("standardised", ", ".join(names), f"{_counted(names)} {text}"))
            flat = [n for n, d in zip(names, found.deviation, strict=False) if d == 0]
            if flat and len(names) == len(found.deviation):
                text = f"column {', '.join(map(repr, flat[:8]))} never changes"
                self.notes.append(Note("constant", ", ".join(flat), text))
        if self.config.missing:
            text = f"missing numbers become the {self.config.missing} of the training rows, inside the written model"
            self.notes.append(Note("missing", ", ".join(names), text))

    def _say_words(self, value: ir.Value, specs: list[ColumnSpec]) -> None:
        for spec in specs:
            if spec.words:
                shown = ", ".join(repr(w) for w in spec.words[:5]) + (
                    " …" if spec.width > 5 else ""
                )
                what = f"a category of {spec.width} words ({shown}): a number each, others all 0"
                self.notes.append(Note("category", spec.name, f"column '{spec.name}' is {what}"))
        text = f"the written model has an input for each of the {len(specs)} columns in the place of '{value.name}'"
        self.notes.append(Note("inputs", value.name, text))

    def _hint(self, wanted: list[ir.Value], specs: list[ColumnSpec] | None, rows) -> None:
        """Columns of very different sizes learn badly: say that there is a flag."""
        value = wanted[0]
        names = [spec.name for spec in specs or []]
        if not names or value.dtype.numpy().kind != "f" or _is_prepared(value):
            return
        if any(name in self.table.gaps for name in names):
            return
        head = self._feed(names)({n: self.table.head(n, 4096) for n in names})
        with np.errstate(all="ignore"):
            sizes = np.sqrt(np.nanmean(np.where(np.isfinite(head), head, np.nan) ** 2, axis=0))
        found = far_apart(np.nan_to_num(sizes))
        if found is not None:
            low, high = found
            text = (
                f"columns differ by orders of magnitude ('{names[high]}' is about {sizes[high]:.3g}, '{names[low]}' "
                f"{sizes[low]:.3g}): --standardize may help a lot"
            )
            self.notes.append(Note("scale", names[high], text))


def _is_prepared(value: ir.Value) -> bool:
    """Whether the model subtracts something from an input, or normalises it, before its first layer."""
    known = ("Sub", "Div", "IsNaN", "BatchNormalization", "LayerNormalization", "Scaler")
    return fills_missing(value) or any(node.op_type in known for node, _ in value.uses())


def _at_least(deviation: np.ndarray) -> np.ndarray:
    """A column that never changes is divided by 1."""
    return np.where(deviation > 0, deviation, 1.0)


def _counted(names: list[str]) -> str:
    return f"column {names[0]!r}" if len(names) == 1 else f"{len(names)} columns"
