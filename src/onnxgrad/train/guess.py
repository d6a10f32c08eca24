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
    rank = None if output.shape is None else len(output.shape)
    whole = target.dtype.kind in "iu"
    if whole and (rank is None or rank == target.ndim + 1):
        return "cross_entropy", (
            f"the targets are integers, and output {output.name!r} has one axis more than they"
        )
    if rank not in (None, target.ndim):
        raise ValueError(
            f"the targets have rank {target.ndim} and type {target.dtype}, and output "
            f"{output.name!r} has rank {rank}: give the loss"
        )
    if np.isin(target[: 1 << 16], (0, 1)).all():
        return "bce", f"the targets are all 0 or 1, in the shape of output {output.name!r}"
    return "mse", f"the targets are numbers in the shape of output {output.name!r}"
