"""Train ONNX models on the ONNX Runtime you already have.

onnxgrad.kernels            gradient kernels on NumPy arrays
onnxgrad.register, session  the same kernels as operators in ONNX Runtime
onnxgrad.grad, vjp          the gradient of a model, as a model
onnxgrad.rule               a gradient rule of your own
onnxgrad.Trainer            training: fit, evaluate, predict, save
onnxgrad.losses, optimizers, schedules, metrics, callbacks   what a Trainer takes
onnxgrad.inspect            what in a model can be trained, what cannot, and why
onnxgrad.artifacts, api, onnxblock   the names of onnxruntime.training, for programs written for it
"""

from __future__ import annotations

import importlib

from onnxgrad import errors
from onnxgrad.errors import (
    AdapterError,
    CheckpointError,
    ConfigError,
    ContractError,
    DataError,
    DivergedError,
    DropInError,
    DropInTypeError,
    ExportError,
    FileError,
    GradientError,
    InternalError,
    LimitError,
    MissingFileError,
    ModelError,
    OnnxGradError,
    OutOfMemoryError,
    ParallelError,
)

__version__ = "0.1.0"

# Loaded when first used: `import onnxgrad` is immediate, and each name loads what it needs.
_LATER = {
    **dict.fromkeys(("get_num_threads", "set_num_threads"), "onnxgrad.kernels"),
    **dict.fromkeys(("library_path", "register", "session"), "onnxgrad.ort"),
    **dict.fromkeys(
        ("grad", "vjp", "rule", "fused", "no_gradient", "unsupported"), "onnxgrad.autodiff"
    ),
    "Trainer": "onnxgrad.train",
    "inspect": "onnxgrad.inspection",
}

__all__ = [
    "AdapterError",
    "CheckpointError",
    "ConfigError",
    "ContractError",
    "DataError",
    "DivergedError",
    "DropInError",
    "DropInTypeError",
    "ExportError",
    "FileError",
    "GradientError",
    "InternalError",
    "LimitError",
    "MissingFileError",
    "ModelError",
    "OnnxGradError",
    "OutOfMemoryError",
    "ParallelError",
    "errors",
    "kernels",
    *_LATER,
]


# Modules, loaded when first used: the kernels, what a Trainer takes, and the names of onnxruntime.training.
_MODULES = {
    **{
        n: f"onnxgrad.train.{n}"
        for n in ("callbacks", "losses", "metrics", "optimizers", "schedules", "trackers")
    },
    **{
        n: f"onnxgrad.{n}"
        for n in ("kernels", "api", "artifacts", "flower", "onnxblock", "stepfile", "train")
    },
}


def __getattr__(name: str):
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    raise AttributeError(f"module 'onnxgrad' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *_MODULES})
