"""The arguments of a Trainer as plain data: a checkpoint keeps them, so that a Trainer can be made from it alone.

Losses, optimizers and the like become `{"is": "CrossEntropy", "label_smoothing": 0.1}`. What is a function, an array or
an object of the caller's own is named in `given`: whoever goes on gives it again.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from onnxgrad.errors import CheckpointError
from onnxgrad.files.hub import is_hub
from onnxgrad.files.paths import is_path
from onnxgrad.model.lora import Lora
from onnxgrad.train import losses, metrics, optimizers, row_losses, schedules

KIND = "is"


def _public(module: Any, base: type) -> dict[str, type]:
    return {n: c for n, c in vars(module).items() if isinstance(c, type) and issubclass(c, base)}


# What may be named by a file: nothing else is ever made from one.
CLASSES = {
    **_public(losses, losses.Loss),
    **_public(row_losses, losses.Loss),
    **_public(optimizers, optimizers.Optimizer),
    **_public(schedules, schedules.Schedule),
    **_public(metrics, metrics.Metric),
    "Lora": Lora,
}


class _NotPlain(Exception):
    """A value that a file cannot hold."""


def recipe(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that were given; those that no file can hold are named under `given`."""
    settings: dict[str, Any] = {}
    given: list[str] = []
    for name, value in arguments.items():
        if value is None or (isinstance(value, tuple) and not value):
            continue
        try:
            is_file = name == "model" and is_path(value) and not is_hub(value)
            settings[name] = os.path.abspath(value) if is_file else _plain(value)
        except _NotPlain:
            given.append(name)
    return {"settings": settings, "given": given}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping) and all(isinstance(k, str) for k in value) and KIND not in value:
        return {k: _plain(v) for k, v in value.items()}
    if CLASSES.get(type(value).__name__) is type(value):
        fields = [f.name for f in dataclasses.fields(value) if f.init]
        return {KIND: type(value).__name__, **{n: _plain(getattr(value, n)) for n in fields}}
    raise _NotPlain


def arguments_of(written: Mapping[str, Any], path: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a checkpoint's recipe and the caller's own make together; the caller's win.

    Raises CheckpointError that names what is missing.
    """
    if not written and "model" not in more:
        raise CheckpointError(
            f"{path} does not say how its trainer was made: it is of an older onnxgrad. "
            "Make one with the same arguments, and call its load_checkpoint"
        )
    missing = [name for name in written.get("given", ()) if name not in more]
    if missing:
        listed = ", ".join(f"{name}=…" for name in missing)
        raise CheckpointError(
            f"{path} cannot hold everything its trainer was made with: give {listed} again"
        )
    settings = written.get("settings", {})
    made = {name: _revived(value, path) for name, value in settings.items() if name not in more}
    return {**made, **more}


def _revived(value: Any, path: Any) -> Any:
    if isinstance(value, list):
        return [_revived(v, path) for v in value]
    if not isinstance(value, dict):
        return value
    fields = {k: _revived(v, path) for k, v in value.items() if k != KIND}
    if KIND not in value:
        return fields
    kind = CLASSES.get(value[KIND])
    if kind is None:
        raise CheckpointError(f"{path} names {value[KIND]!r}, which onnxgrad does not have")
    return kind(**fields)
