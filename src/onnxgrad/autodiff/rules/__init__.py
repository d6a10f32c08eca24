"""One file per family of operators. Importing this package fills the registry."""

from onnxgrad.autodiff.rules import (
    activation,
    arithmetic,
    contrib,
    control,
    conv,
    indexing,
    loss,
    matmul,
    normalization,
    nothing,
    pooling,
    recurrent,
    reduction,
    resize,
    sampling,
    shape,
)

__all__ = [
    "activation",
    "arithmetic",
    "contrib",
    "control",
    "conv",
    "indexing",
    "loss",
    "matmul",
    "normalization",
    "nothing",
    "pooling",
    "recurrent",
    "reduction",
    "resize",
    "sampling",
    "shape",
]
