"""One file per family of operators. Importing this package fills the registry."""

from onnxgrad.autodiff.rules import (
    activation,
    arithmetic,
    matmul,
    nothing,
    reduction,
    shape,
)

__all__ = [
    "activation",
    "arithmetic",
    "matmul",
    "nothing",
    "reduction",
    "shape",
]
