"""What a server app asks: the parameters of the first round, and the model of the last."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxgrad.errors import ConfigError
from onnxgrad.flower.records import from_record, to_record
from onnxgrad.train.trainer import Trainer


def sent_tensors(trainer: Trainer, statistics: bool) -> list[str]:
    """The names of what travels: the trained parameters, and running statistics if asked for."""
    return [*trainer.store.names, *(trainer.store.statistics if statistics else ())]


def initial_arrays(model: Any, *, statistics: bool = True, **settings: Any) -> Any:
    """Return the tensors that rounds exchange, by name, as the ArrayRecord that a strategy starts from.

    `statistics` and `settings` are as for `client_app`; with `lora` they are those of the adapter alone.
    """
    trainer = Trainer(model, **settings)
    weights = trainer.get_weights()
    return to_record({name: weights[name] for name in sent_tensors(trainer, statistics)})


def save(
    model: Any,
    arrays: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    statistics: bool = True,
    **settings: Any,
) -> None:
    """Write the model with the arrays of a strategy's result; with `lora`, with the adapter merged into it.

    Arrays that are not those of `initial_arrays` with the same settings are refused. Where `statistics` is
    False, no node has sent its own: the written model has those of the file.
    """
    trainer = Trainer(model, **settings)
    trainer.set_weights(tensors_by_name(arrays, sent_tensors(trainer, statistics)))
    trainer.save(path)


def tensors_by_name(arrays: Mapping[str, Any], names: list[str]) -> dict[str, np.ndarray]:
    """The arrays that came; others than were agreed on are refused."""
    given = from_record(arrays)
    if given.keys() != set(names):
        odd = sorted(given.keys() ^ set(names))
        raise ConfigError(
            f"the server and this model have different tensors ({few(odd)}): start from "
            "onnxgrad.flower.initial_arrays with the settings of client_app"
        )
    return given


def few(names: list[str]) -> str:
    """The first names of a list, for a message."""
    return ", ".join(map(repr, names[:4])) + (" …" if len(names) > 4 else "")
