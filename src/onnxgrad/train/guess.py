"""Which loss a model and its targets suggest."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxgrad.graph import load


def guess_loss(model: Any, target: np.ndarray) -> tuple[str, str]:
    """Return the name of a loss for the model's first float output, and the reason in words.

        >>> import onnx
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 8, opset_import: ["" : 17]>
        ...     g (float[N, 4] x) => (float[N, 3] y) <float[4, 3] w = {1,2,3,4,5,6,7,8,9,1,2,3}>
        ...     { y = MatMul(x, w) }''')
        >>> guess_loss(model, np.array([0, 2, 1]))
        ('cross_entropy', "the targets are integers, and output 'y' has one axis more than they")

    Raises ValueError where neither shape nor type suggests one.
    """
    output = next(
        (v for v in load(model).graph.outputs if v.dtype and v.dtype.numpy().kind == "f"), None
    )
    if output is None:
        raise ValueError("the model has no float output, so no loss can be guessed")
    target = np.asarray(target)
    name = f"output {output.name!r}"
    shape = None if output.shape is None else list(output.shape)
    rank = None if shape is None else len(shape)
    over = rank == target.ndim + 1
    column = over and shape[-1] == 1
    if not column and (rank is None or over) and _whole(target):
        return "cross_entropy", f"the targets are integers, and {name} has one axis more than they"
    if not column and rank not in (None, target.ndim):
        raise ValueError(
            f"the targets have rank {target.ndim} and type {target.dtype}, and {name} has rank {rank}: give the loss"
        )
    like = f"and {name} has one column" if column else f"in the shape of {name}"
    if np.isin(target[: 1 << 16], (0, 1)).all():
        return "bce", f"the targets are all 0 or 1, {like}"
    return "mse", f"the targets are numbers, {like}"


def _whole(target: np.ndarray) -> bool:
    """Labels, in whatever type they came."""
    if target.dtype.kind == "f":
        return bool((target == np.floor(target)).all())
    return target.dtype.kind in "iu"
