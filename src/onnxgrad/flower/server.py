"""What a server app asks: the parameters of the first round, and the model of the last."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

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
    model: Any, arrays: Mapping[str, Any], path: str | os.PathLike[str], **settings: Any
) -> None:
    """Write the model with the arrays of a strategy's result; with `lora`, with the adapter merged into it."""
    trainer = Trainer(model, **settings)
    trainer.set_weights(from_record(arrays))
    trainer.save(path)
