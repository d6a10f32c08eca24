"""Inputs from what is not numbers yet (text, pictures, sounds), and from nothing: constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxgrad.data.forms import ConstantFeed, Forms
from onnxgrad.data.images import Images
from onnxgrad.data.matched import Matched
from onnxgrad.data.ragged import LengthFeed, role_of
from onnxgrad.data.sounds import Sounds
from onnxgrad.data.table import Table
from onnxgrad.data.texts import TextForm, feed_texts, text_columns
from onnxgrad.errors import DataError
from onnxgrad.notes import Note

RATES = ("sr", "sample_rate", "sampling_rate")  # inputs that take the rate of a sound


def tokens(
    wanted: list[ir.Value], table: Table, names: list[str], matched: Matched, one: Callable
) -> dict:
    """Tokens of text, or tokens that the table has, with masks and places that follow from their number.

    `one` gives an input a column of numbers.
    """
    forms = matched.forms
    texts = text_columns(table, names, forms.texts, "texts" not in forms.origin)
    ids = next(v for v in wanted if role_of(v.name) == "ids")
    if ids.name not in names and texts:
        if forms.tokenizer is None:
            raise DataError(
                f"input '{ids.name}' of the model takes tokens, and column '{texts[0]}' of {table.source} is text: "
                "name the model's tokenizer.json with --tokenizer, or put it beside the model"
            )
        made = feed_texts(wanted, texts, forms.tokenizer(), forms.texts)
        form = TextForm(forms.texts.tokenizer, made[ids.name].texts.length, tuple(texts))
        matched.forms = replace(forms, texts=form)
        matched.kinds.add("texts")
        matched.notes.append(Note("text", ids.name, f"text: {form}{_because(forms, 'texts')}"))
        return made
    column = ids.name if ids.name in names else names[0] if len(names) == 1 else None
    if column is None or table.columns[column].dtype.kind not in "iu":
        return {}
    missing = [v for v in wanted if v.name not in names and v is not ids]
    if missing:
        listed = ", ".join(f"'{v.name}'" for v in missing)
        text = f"input {listed}: by the lengths of '{column}'"
        matched.notes.append(Note("input", missing[0].name, text))
    return {
        v.name: LengthFeed([column], role_of(v.name), np.dtype(v.dtype.numpy()), second_size(v))
        if v in missing
        else one(v, column if v is ids else v.name, table, matched)
        for v in wanted
    }


def second_size(value: ir.Value) -> int | None:
    """How many tokens or frames a model takes, where it fixes them."""
    dims = None if value.shape is None else list(value.shape)
    return dims[1] if dims is not None and len(dims) > 1 and isinstance(dims[1], int) else None


def _because(forms: Forms, kind: str) -> str:
    return f" ({forms.origin[kind]})" if kind in forms.origin else ""


def is_rate(value: ir.Value, table: Table) -> bool:
    """Whether an input is the rate of the sounds in a table."""
    sounds = any(isinstance(a, Sounds) for a in table.arrays.values())
    return sounds and value.name.lower() in RATES and value.shape is not None and not value.shape


def constant(value: ir.Value, table: Table, matched: Matched) -> ConstantFeed:
    dtype, known = np.dtype(value.dtype.numpy()), matched.forms.constants
    dims = (
        () if value.shape is None else tuple(d if isinstance(d, int) else None for d in value.shape)
    )
    if dims.count(None) > 1:
        raise DataError(
            f"--constant {value.name}: only the number of rows may be free in its shape"
        )
    number = known.get(value.name)
    if number is None:
        number = next(a for a in table.arrays.values() if isinstance(a, Sounds)).form.rate
        text = f"input '{value.name}': {number}, the rate of the sounds"
        matched.notes.append(Note("input", value.name, text))
    return ConstantFeed(dims, number, dtype)


def fit(column: Images | Sounds, value: ir.Value, dims: list, matched: Matched) -> None:
    """Give pictures or sounds the form that an input takes, and keep what that is."""
    kind, word = ("pictures", "images") if isinstance(column, Images) else ("sounds", "sounds")
    forms = matched.forms
    column.fit(f"input '{value.name}'", dims, value.dtype.numpy(), getattr(forms, kind))
    matched.forms = replace(forms, **{kind: column.form})
    matched.kinds.add(kind)
    because = _because(forms, kind)
    plain = kind == "pictures" and not because and value.dtype.numpy().kind == "f"
    if plain and not column.form.mean and not column.form.std:
        because = "; other sizes are resized, and no mean is subtracted (--mean, --std)"
    matched.notes.append(Note(kind, value.name, f"{word}: {column.form}{because}"))
    matched.notes += [Note(kind, value.name, text) for text in getattr(column, "notes", [])]
