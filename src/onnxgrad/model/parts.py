"""Nodes that a change puts into the trained graph, with names, types and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

INT64 = ir.DataType.INT64


class Parts:
    """Makes nodes whose values are called `base/name`; they are inserted by who asked for them."""

    def __init__(self, model: ir.Model, base: str):
        self.model, self.base = model, base
        self.nodes: list[ir.Node] = []

    def constant(self, name: str, array: np.ndarray) -> ir.Value:
        """Add a tensor to the graph."""
        value = ir.Value(name=f"{self.base}/{name}", const_value=ir.tensor(array))
        value.const_value.name, value.shape = value.name, ir.Shape(array.shape)
        value.dtype = value.const_value.dtype
        self.model.graph.register_initializer(value)
        return value

    def make(
        self, op: str, name: str, inputs: list, kind: Any, shape: Any = None, **attributes: int
    ) -> ir.Value:
        """Make a node of one output, with integer attributes."""
        out = ir.Value(name=f"{self.base}/{name}", shape=shape, type=ir.TensorType(kind))
        own = [ir.AttrInt64(key, int(value)) for key, value in attributes.items()]
        self.nodes.append(ir.Node("", op, inputs, own, outputs=[out], name=out.name))
        return out
