"""Tensors by name as Flower's records: the only file, beside the client app, that knows flwr."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxgrad.errors import ConfigError


def flwr_app() -> Any:
    """The module flwr.app, or a sentence that says what to install."""
    try:
        import flwr.app
    except ImportError as error:
        raise ConfigError(
            f"onnxgrad.flower needs flwr 1.26 or newer and Python 3.11: pip install 'onnxgrad[flower]' ({error})"
        ) from error
    return flwr.app


def to_record(tensors: Mapping[str, np.ndarray]) -> Any:
    """An ArrayRecord that keeps the names."""
    app = flwr_app()
    return app.ArrayRecord(
        {name: app.Array(np.ascontiguousarray(a)) for name, a in tensors.items()}
    )


def from_record(record: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays by name."""
    return {name: array.numpy() for name, array in record.items()}
