"""The branch, written into a graph beside the layer that it corrects.

    LoRA    Y = X·W + s·(X·A)·B                     A [in, r], B [r, out]
    DoRA    Y = g·(X·W + s·(X·A)·B),  g = m/n       m, n [out]; n = ‖W + s·A·B‖ of each column

A convolution has A [r, in, k...] with its own kernel, strides and pads, and B [out, r, 1...]; a table has
A [rows, r] and takes rows of it. Neither A·B nor a gradient of W is ever formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxgrad.errors import AdapterError
from onnxgrad.model.lora.layers import MICROSOFT, Layer, Place

DROPOUT = "lora/dropout/"  # begins the names of the branches' own Dropout nodes


@dataclass
class Parts:
    """The tensors of one branch as values of the graph. `gain` is g itself, in a file that takes adapters."""

    a: ir.Value
    b: ir.Value
    magnitude: ir.Value | None = None
    gain: ir.Value | None = None


class Writer:
    """Writes nodes behind a node of a graph, each behind the one before."""

    def __init__(self, model: ir.Model, stem: str):
        self.model, self.graph, self.stem = model, model.graph, stem
        self.written: list[ir.Node] = []
        self._at: ir.Node | None = None
        self._count = 0

    def behind(self, node: ir.Node) -> Writer:
        """Write behind `node` from now on."""
        self._at = node
        return self

    def __call__(
        self, op_type: str, *inputs: ir.Value | None, domain: str = "", name: str = "",
        dtype: ir.DataType | None = None, shape: Any = None, **attributes: Any,
    ) -> ir.Value:  # fmt: skip
        """Write one node; return its first output."""
        return self.many(
            op_type, *inputs, domain=domain, name=name, dtype=dtype, shape=shape, **attributes
        )[0]

    def many(
        self, op_type: str, *inputs: ir.Value | None, outputs: int = 1, domain: str = "",
        name: str = "", dtype: ir.DataType | None = None, shape: Any = None, **attributes: Any,
    ) -> list[ir.Value]:  # fmt: skip
        """Write one node; return its outputs."""
        self._count += 1
        stem = name or f"{self.stem}/{op_type}_{self._count}"
        known = (v.dtype for v in inputs if v is not None and v.dtype is not None)
        dtype = dtype or next(known, None)
        kind = None if dtype is None else ir.TensorType(dtype)
        values = [
            ir.Value(name=stem if outputs == 1 else f"{stem}_{i}", type=kind)
            for i in range(outputs)
        ]
        if shape is not None:
            values[0].shape = ir.Shape(shape)
        made = [ir.convenience.convert_attribute(k, v) for k, v in attributes.items()]
        node = ir.Node(domain, op_type, list(inputs), made, outputs=values, name=stem)
        self.graph.insert_after(self._at, node)
        self._at = node
        self.written.append(node)
        if domain:
            self.model.opset_imports.setdefault(domain, 1)
        return values

    def constant(self, array: np.ndarray) -> ir.Value:
        """Return an initializer that holds `array`."""
        self._count += 1
        return initializer(self.graph, f"{self.stem}/constant_{self._count}", array)

    def integers(self, *numbers: int) -> ir.Value:
        """Return an initializer of int64."""
        return self.constant(np.array(numbers, np.int64))


def initializer(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """Add a tensor to a graph."""
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype))
    value.shape = ir.Shape(array.shape)
    graph.register_initializer(value)
    return value


@dataclass
class Branch:
    """How branches are written: `scale` is 1 where it is part of B already."""

    model: ir.Model
    scale: float = 1.0
    dropout: float = 0.0

    def write(self, layer: Layer, parts: Parts, matrix_norms: np.ndarray | None = None) -> None:
        """Put a branch beside every place of a layer. `matrix_norms` are the ‖W‖² of DoRA's columns."""
        for number, place in enumerate(layer.places):
            op = Writer(self.model, f"lora/{layer.name}" + (f"/{number}" if number else ""))
            scaled = parts.magnitude is not None or parts.gain is not None
            y, bias = self._bare(op, layer, place, scaled)
            kind, x = parts.a.dtype, place.x
            own = _float_type(layer, place) or kind  # the layer's: a file may have half precision
            if layer.kind != "embedding" and own != kind:
                x = op("Cast", x, to=int(kind), dtype=kind, shape=x.shape)
            wide = y if own == kind else op("Cast", y, to=int(kind), dtype=kind, shape=y.shape)
            total = op("Add", wide, self._low_rank(op, layer, parts, place, x))
            gain = parts.gain
            if parts.magnitude is not None:
                gain = op("Div", parts.magnitude, self._norm(op, layer, place, parts, matrix_norms))
            if gain is not None:
                total = op("Mul", total, self._as_channels(op, layer, gain))
            if own != kind:
                total = op("Cast", total, to=int(own), dtype=own)
            self._join(op, layer, place, y, total, bias)

    # ---- the two products

    def _low_rank(
        self, op: Writer, layer: Layer, parts: Parts, place: Place, x: ir.Value
    ) -> ir.Value:
        """s·(X·A)·B; the factor is applied where there are r columns only."""
        kind = parts.a.dtype
        if self.dropout and layer.kind != "embedding":
            rate = op.constant(np.array(self.dropout, np.float32))
            name = f"{DROPOUT}{op.stem.removeprefix('lora/')}"
            x = op("Dropout", x, rate, name=name, dtype=kind, shape=x.shape)
        if layer.kind == "conv":
            t = op("Conv", x, parts.a, **_window(place.node))
        elif layer.kind == "embedding":
            t = op("Gather", parts.a, x, dtype=kind, axis=0)
        else:
            t = op("MatMul", x, parts.a)
        if self.scale != 1:
            t = op("Mul", t, op.constant(np.array(self.scale, kind.numpy())))
        return op("Conv" if layer.kind == "conv" else "MatMul", t, parts.b)

    def _norm(
        self, op: Writer, layer: Layer, place: Place, parts: Parts, norms: np.ndarray
    ) -> ir.Value:
        """n of each column, which counts as a constant in the backward pass.

        n² = ‖W‖² + Σ_r B·(2s·AᵀW + s²·(AᵀA)·B), of r rows each. Floor has the derivative zero, and n·2⁶⁴ is
        a whole number for every n above 2⁻⁴¹, so that it changes no bit.
        """
        a, b, number = parts.a, parts.b, parts.a.dtype.numpy()
        if layer.kind == "conv":
            wide = op.integers(0, -1)
            a = op("Transpose", op("Reshape", a, wide), perm=[1, 0])
            b = op("Transpose", op("Reshape", b, wide), perm=[1, 0])
        across = op("Transpose", a, perm=[1, 0])
        cross = self._across(op, layer, place, across)
        inner = op("MatMul", op("MatMul", across, a), b)
        twice = op("Mul", cross, op.constant(np.array(2 * self.scale, number)))
        square = op("Mul", inner, op.constant(np.array(self.scale**2, number)))
        change = op("Mul", b, op("Add", twice, square))
        summed = op("ReduceSum", change, op.integers(0), keepdims=0)
        n = op("Sqrt", op("Add", summed, op.constant(norms.astype(number))))
        large = op.constant(np.array(2.0**64, number))
        return op("Div", op("Floor", op("Mul", n, large)), large)

    def _across(self, op: Writer, layer: Layer, place: Place, across: ir.Value) -> ir.Value:
        """Aᵀ·W, [r, out]: the layer itself applied to Aᵀ, so that a packed weight stays packed."""
        node, weight = place.node, place.node.inputs[1]
        if layer.kind == "conv":
            flat = op("Reshape", weight, op.integers(0, -1))
            return op("MatMul", across, op("Transpose", flat, perm=[1, 0]))
        if layer.kind == "embedding":
            return op("MatMul", across, node.inputs[0])
        if node.op_type in ("MatMulInteger", "DynamicQuantizeMatMul"):
            raise AdapterError(
                f"lora: {layer.name!r} quantises its input as it runs, which DoRA's norm of the columns "
                'cannot be computed by; use variant="lora" or "rslora"'
            )
        if layer.kind == "packed":
            return op("MatMul", across, weight)
        # without accuracy_level, which would round Aᵀ to 8 bits
        attributes = {k: a.value for k, a in node.attributes.items() if k != "accuracy_level"}
        inputs = list(node.inputs)[1 : 2 if node.op_type == "Gemm" else 5]
        return op(
            node.op_type, across, *inputs, domain=node.domain, dtype=across.dtype, **attributes
        )

    @staticmethod
    def _as_channels(op: Writer, layer: Layer, gain: ir.Value) -> ir.Value:
        if layer.kind != "conv":
            return gain
        return op("Reshape", gain, op.integers(-1, *(1 for _ in layer.kernel)))

    # ---- into the graph

    def _bare(
        self, op: Writer, layer: Layer, place: Place, scaled: bool
    ) -> tuple[ir.Value, ir.Value | None]:
        """The layer's output, and the bias that is to be added behind the branch.

        Only where the sum is scaled must it stand behind: the bias is not part of the weight.
        """
        node = place.node
        if layer.kind == "packed":
            op.behind(node)
            return op("MatMul", place.x, node.inputs[1], dtype=place.x.dtype), node.inputs[2]
        op.behind(place.y.producer())
        if not scaled:
            return place.y, None
        at = {"Gemm": 2, "Conv": 2, "MatMulNBits": 5}.get(node.op_type)
        bias = None if at is None or at >= len(node.inputs) else node.inputs[at]
        if bias is None:
            return place.y, None
        node.replace_input_with(at, None)
        node.resize_inputs(max(i for i, v in enumerate(node.inputs) if v is not None) + 1)
        beta = node.attributes["beta"].value if "beta" in node.attributes else 1.0
        if beta != 1.0:
            bias = op("Mul", bias, op.constant(np.array(beta, bias.dtype.numpy())))
        if node.op_type == "Conv":
            ones = (1 for _ in layer.kernel)
            bias = op("Reshape", bias, op.integers(-1, *ones), dtype=bias.dtype)
        return place.y, bias

    def _join(self, op, layer, place, y, total, bias) -> None:
        """Let everything that read the layer's output read the sum."""
        if bias is not None:
            total = op("Add", total, bias)
        if layer.kind == "packed":
            _attend(op, place.node, total)
            return
        _give_way(self.model.graph, place.y, total, set(op.written))


def _float_type(layer: Layer, place: Place) -> ir.DataType | None:
    """The type that a layer computes in: of its output, its input, or its weight and scales."""
    near = [place.y, *([] if layer.kind == "embedding" else [place.x]), *place.node.inputs]
    floats = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    return next((v.dtype for v in near if v is not None and v.dtype in floats), None)


def _give_way(graph: ir.Graph, y: ir.Value, total: ir.Value, own: set[ir.Node]) -> None:
    """Give the users and the name of `y` to `total`; the nodes of the branch keep reading `y`."""
    name, shape, kind = y.name, y.shape, y.type
    for node, index in tuple(y.uses()):
        if node not in own:
            node.replace_input_with(index, total)
    for index, value in enumerate(graph.outputs):
        if value is y:
            graph.outputs[index] = total
    y.name = f"{name}/frozen"
    total.name, total.shape, total.type = name, shape, kind


def _window(node: ir.Node) -> dict[str, Any]:
    names = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
    return {n: node.attributes[n].value for n in names if n in node.attributes}


def _attend(op: Writer, node: ir.Node, product: ir.Value) -> None:
    """Attention from the product that it would have made: a MultiHeadAttention of its three parts."""
    given = dict(
        zip(("input", "weights", "bias", "mask", "past", "bias_of"), node.inputs, strict=False)
    )
    if given.get("past") is not None or any(v.uses() for v in node.outputs[1:]):
        raise AdapterError(
            f"lora: {node.name or node.op_type!r} reads or makes a cache of keys and values, where its "
            "product cannot be adapted; export the model without past"
        )
    sizes = node.attributes.get("qkv_hidden_sizes")
    cut = [op.integers(*sizes.value)] if sizes is not None else []
    more = {} if cut or _opset(op) < 18 else {"num_outputs": 3}
    parts = op.many("Split", product, *cut, outputs=3, axis=2, dtype=product.dtype, **more)
    keep = ("num_heads", "scale", "unidirectional", "mask_filter_value")
    attributes = {n: node.attributes[n].value for n in keep if n in node.attributes}
    result = op(
        "MultiHeadAttention", *parts, None, given.get("mask"), given.get("bias_of"),
        domain=MICROSOFT, dtype=product.dtype, **attributes,
    )  # fmt: skip
    _give_way(op.graph, node.outputs[0], result, set())
    op.graph.remove(node, safe=True)


def _opset(op: Writer) -> int:
    return op.model.opset_imports.get("", 1)
