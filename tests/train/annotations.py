"""Whether the types and shapes that a graph declares are those that its values have when it runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime

import onnxgrad


def wrong(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[str]:
    """Run a model with every declared value as an output; return the declarations that are not true."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    made = {name for node in proto.graph.node for name in node.output}
    known = {value.name for value in proto.graph.output}
    declared = [
        v for v in proto.graph.value_info if v.name in made and v.type.HasField("tensor_type")
    ]
    proto.graph.output.extend(v for v in declared if v.name not in known)
    declared = list(proto.graph.output)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxgrad.session(proto, options)
    needed = {value.name for value in session.get_inputs()}
    arrays = session.run(
        [v.name for v in declared], {n: a for n, a in feeds.items() if n in needed}
    )
    found, sizes = [], {}
    for value, array in zip(declared, arrays, strict=True):
        if array is None:  # an optional output that nothing makes
            continue
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype != array.dtype:
            found.append(f"{value.name} is {array.dtype}, declared {dtype}")
        if kind.HasField("shape") and not _fits(kind.shape.dim, array.shape, sizes):
            shape = [d.dim_param or d.dim_value for d in kind.shape.dim]
            found.append(f"{value.name} has the shape {list(array.shape)}, declared {shape}")
    return found


def _fits(dims, shape: tuple[int, ...], sizes: dict[str, int]) -> bool:
    """Whether every number is right, and every name stands for one size; `sizes` has those seen so far.

    Of a size that is neither, nothing is declared.
    """
    if len(dims) != len(shape):
        return False
    return all(
        d.dim_value == size
        if d.HasField("dim_value")
        else not d.dim_param or sizes.setdefault(d.dim_param, size) == size
        for d, size in zip(dims, shape, strict=True)
    )


def wrong_in_training(trainer: onnxgrad.Trainer, batch: Mapping[str, np.ndarray]) -> list[str]:
    """Return what the training graph of a trainer declares and is not so."""
    plan = trainer._plan
    weights = trainer.store.tensors()
    return wrong(
        plan.graph.model.proto, {**plan.graph.model.bound, **weights, **plan.settings, **batch}
    )
