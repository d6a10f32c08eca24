"""What each float tensor of a model is: a weight, or something that only looks like one, and why.

Decided by how it is used, by what it holds and by what the exporter says of it. `docs/inspect.md`
lists the rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxgrad.autodiff.plan import choose, make_plan, names_of
from onnxgrad.model import origin, patterns
from onnxgrad.notes import Note

TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
WEIGHT, UNREACHED, FROZEN = "weight", "unreached", "frozen"


@dataclass(frozen=True)
class Tensor:
    """One float tensor of the model. `reason` says why it is not trained by default; empty for weights.

    `possible`: it has a gradient, so that naming it trains it.
    """

    name: str
    kind: str
    reason: str
    shape: tuple[int, ...]
    type: str
    possible: bool = True

    @property
    def trained(self) -> bool:
        """Whether "all" means it."""
        return self.kind == WEIGHT

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


# Kinds that every model has: they are not worth a note.
_UNSAID = ("statistic", "setting", "constant", UNREACHED, FROZEN, "quantisation")


def notes(tensors: Iterable[Tensor]) -> list[Note]:
    """Say of what looks like weights why it is not trained."""
    found = [t for t in tensors if not t.trained and t.kind not in _UNSAID and t.size > 1]
    return [
        Note(
            "not a weight",
            t.name,
            f"tensor {t.name!r} is not trained: {t.reason} ({t.kind})",
            f"--trainable all,{t.name} trains it" if t.possible else "",
        )
        for t in found
    ]


def judge(model: ir.Model, outputs: Iterable[ir.Value]) -> list[Tensor]:
    """Return every float tensor in initializers and Constants, by the losses of `outputs`."""
    values = float_tensors(model)
    outputs = list(outputs)
    marked = [v for v in values if v.dtype in TYPES]
    active = make_plan(model, outputs, marked, "fused").active
    known = _Evidence(model)
    return [_reached(known.judge(v), v, v in active, model, outputs) for v in values]


def float_tensors(model: ir.Model) -> list[ir.Value]:
    """Return the float initializers, then the outputs of float Constants, of the main graph."""
    graph = model.graph
    found = dict.fromkeys(graph.initializers.values())
    found.update((n.outputs[0], None) for n in graph if n.op_type == "Constant" and not n.domain)
    return [
        v
        for v in found
        if v.dtype is not None and v.dtype.is_floating_point() and v.shape is not None
    ]


def _reached(tensor: Tensor, value: ir.Value, active: bool, model: ir.Model, outputs) -> Tensor:
    """Say of a weight that has no gradient what keeps it from having one."""
    if active or tensor.kind in ("statistic", "setting"):
        return replace(tensor, possible=active and tensor.kind != "statistic")
    if not value.uses():
        reason = "nothing uses it"
    else:
        others = [v for v in model.graph.outputs if v not in outputs and _depends(v, value)]
        judged = " and ".join(repr(v.name) for v in outputs)
        reason = (
            f"only output {others[0].name!r} depends on it, and the loss is of {judged}"
            if others and not any(_depends(v, value) for v in outputs)
            else "no output depends on it in a differentiable way"
        )
    kind = tensor.kind if tensor.kind != WEIGHT else UNREACHED
    return replace(tensor, kind=kind, reason=tensor.reason or reason, possible=False)


def _depends(output: ir.Value, value: ir.Value) -> bool:
    waiting, seen = [output], {output}
    while waiting:
        current = waiting.pop()
        if current is value:
            return True
        node = current.producer()
        for v in () if node is None else node.inputs:
            if v is not None and v not in seen:
                seen.add(v)
                waiting.append(v)
    return False


class _Evidence:
    """What is known of a model as a whole, and the judgement of one tensor by it."""

    def __init__(self, model: ir.Model):
        self.model, self.opset_of = model, model.opset_imports
        self.by_torch = (model.producer_name or "").startswith("pytorch")
        self.prepared = set(_preparing(model))
        self.made = made_by(model)

    def judge(self, value: ir.Value) -> Tensor:
        kind, reason = self._of_use(value) or self._of_file(value) or self._of_numbers(value)
        shape = tuple(int(d) for d in value.shape)
        return Tensor(value.name or "", kind, reason, shape, value.dtype.name.lower())

    def _of_use(self, value: ir.Value) -> tuple[str, str] | None:
        uses = list(value.uses())
        if any(n.op_type == "BatchNormalization" and not n.domain and i >= 3 for n, i in uses):
            return "statistic", "running statistics of a batch normalisation: updated, not trained"
        if uses and all(_becomes_statistic(n) for n, _ in uses):
            return "statistic", "running statistics that are computed from it: kept, not trained"
        if uses and all((n.op_type, i) in SCALES for n, i in uses):
            return "quantisation", "a scale of quantisation"
        if uses and not any(self._learns(n, i) for n, i in uses):
            return "setting", "a setting of an operator, which has no gradient for it"
        return None

    def _of_file(self, value: ir.Value) -> tuple[str, str] | None:
        if self._idle(value):
            return "constant", "the ones or zeros of a normalisation that learns nothing"
        kind = value.metadata_props.get(origin.KIND, "")
        if kind == "PARAMETER":
            return WEIGHT, ""
        if kind:
            return "buffer", f"the exporter wrote it as a {kind.replace('_', ' ').lower()}"
        if origin.matrix_of_spectral(value.name or "") in self.model.graph.initializers:
            return (
                "buffer",
                "a vector of a spectral normalisation, which a step of training refines",
            )
        if _of_statistics(value):
            return (
                "buffer",
                "the exporter computed it from running statistics, which nothing updates",
            )
        if origin.is_computed(value.metadata_props, self.made) or _is_zero_product(value):
            return "constant", "the exporter computed it, and from no parameter"
        constant = value.producer() is not None
        size = int(np.prod([int(d) for d in value.shape]))
        folded = origin.FOLDED in value.metadata_props
        paddles = origin.is_paddles(value.name or "")  # it writes parameters as Constants, too
        unnamed = (constant and not paddles) or origin.is_generated(value.name or "")
        named = paddles or (self.by_torch and not unnamed)  # PyTorch's parameters keep their names
        kinds = {n.op_type for n, _ in value.uses()}
        setting = len(value.shape) == 0 or (unnamed and kinds <= _ARITHMETIC and not folded)
        setting = setting or kinds <= _LIMITS or (kinds <= _ARITHMETIC and _is_tensorflows(value))
        if self.by_torch:  # whose calls and parameters the names of what was folded are
            setting = setting and not origin.folded_parameters(value.metadata_props)
        if size == 1 and setting and not named and not (self.by_torch and is_silent(value)):
            return "setting", "a single number: a setting"
        if constant and self.by_torch and not folded:
            return "constant", "PyTorch writes parameters as initializers, and this is a Constant"
        if unnamed and not folded and self._fills(value):
            return "constant", "the ones or zeros that an operator starts from"
        return None

    def _idle(self, value: ir.Value) -> bool:
        """The exporter notes the calls that read it: normalisations without a parameter."""
        nodes = [node for node, _ in value.uses()]
        if any(n.op_type in _LAYERS for n in nodes):
            return False  # a batch normalisation that was folded into it
        if not nodes or not all(origin.learns_nothing(n.op_type, n.metadata_props) for n in nodes):
            return False
        return _is_uniform(value)

    def _fills(self, value: ir.Value) -> bool:
        """GroupNorm is written as InstanceNormalization with ones and zeros; states begin at zero."""
        return _is_uniform(value) and all(
            n.op_type == "InstanceNormalization" or (n.op_type in _RECURRENT and i >= 5)
            for n, i in value.uses()
        )

    def _of_numbers(self, value: ir.Value) -> tuple[str, str]:
        tensor = ir.convenience.get_const_tensor(value)
        if value in self.prepared:
            return "normalisation", "it prepares an input before the first layer (mean, deviation)"
        if tensor is None:
            return WEIGHT, ""
        uses = [(n.op_type, i) for n, i in value.uses()]
        kernel = self.by_torch and origin.is_a_layers(value.name or "")
        if any(u in _OF_LAYERS or (kernel and u in _KERNELS) for u in uses):
            return patterns.describe_mask(tensor.numpy()) or (WEIGHT, "")
        kinds = {n.op_type for n, _ in value.uses()}
        if "Mul" in kinds and kinds <= {"Mul", "Sub"}:
            found = patterns.describe_switches(tensor.numpy())
            if found:
                return found
        if kinds <= {"MatMul", "Einsum"} and patterns.is_symmetric(tensor.numpy()):
            return "graph", "it equals its transpose, as the matrix of a graph does"
        fixed = kinds <= {"Conv", "ConvTranspose"} and not origin.is_generated(value.name or "")
        if fixed and patterns.is_one_filter(tensor.numpy()):
            return "filters", "it is one filter, the same for every channel"
        return patterns.describe(tensor.numpy(), kinds <= _POINTWISE) or (WEIGHT, "")

    def _learns(self, node: ir.Node, index: int) -> bool:
        """Say whether a node's rule gives a gradient for its input `index`."""
        if (node.op_type, index) in _SETTINGS:
            return False
        rules = choose(node, self.opset_of, "fused")
        names = names_of(node, self.opset_of, rules[0] if rules else None)
        if not rules or names is None or not rules[0].wrt:
            return True  # the walk inlines its body or goes into it, or says what is missing
        return names.input_name(index) in rules[0].wrt


# Differentiable, yet not weights.
_SETTINGS = {
    ("Clip", 1), ("Clip", 2), ("Pow", 1), ("Pad", 2), ("Resize", 1), ("Resize", 2), ("OneHot", 2),
}  # fmt: skip
# What only quantising operators read: scales and zero points.
SCALES = {
    (op, i)
    for op, inputs in {
        "QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2), "MatMulNBits": (2, 3),
        "QLinearConv": (1, 2, 4, 5, 6, 7), "QLinearMatMul": (1, 2, 4, 5, 6, 7),
        "DynamicQuantizeMatMul": (2, 3), "MatMulIntegerToFloat": (2, 3, 4, 5),
        "MatMulBnb4": (2,), "GatherBlockQuantized": (2, 3), "QGemm": (1, 2, 4, 5, 7, 8),
        "QAttention": (3, 4, 6, 7), "DynamicQuantizeLSTM": (8, 9, 10, 11), "QLinearConcat": range(100),
        "QEmbedLayerNormalization": range(8, 18), "QLinearWhere": (2, 3, 5, 6, 7, 8),
        **dict.fromkeys(("QLinearAdd", "QLinearMul"), (1, 2, 4, 5, 6, 7)),
        **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearLeakyRelu",
                         "QLinearReduceMean", "QLinearSigmoid", "QLinearSoftmax"), (1, 2, 3, 4)),
    }.items()
    for i in inputs
}  # fmt: skip
# The scales and biases of layers: nobody puts a table there, and in a young network they still look like one.
_OF_LAYERS = {
    (op, i)
    for op, inputs in {
        "BatchNormalization": (1, 2), "LayerNormalization": (1, 2), "InstanceNormalization": (1, 2),
        "GroupNormalization": (1, 2), "RMSNormalization": (1,), "SkipLayerNormalization": (2, 3, 4),
        "SimplifiedLayerNormalization": (1,), "SkipSimplifiedLayerNormalization": (2, 3),
        "Conv": (2,), "ConvTranspose": (2,), "Gemm": (2,), "PRelu": (1,),
        "LSTM": (3,), "GRU": (3,), "RNN": (3,), "EmbedLayerNormalization": (5, 6), "BiasGelu": (1,),
        "FastGelu": (1,), "FusedConv": (2,), "FusedGemm": (2,), "Attention": (2,), "MultiHeadAttention": (3,),
    }.items()
    for i in inputs
}  # fmt: skip
# Where PyTorch's own layers have their `weight`; a filter that is fixed has another name.
_KERNELS = {("Conv", 1), ("ConvTranspose", 1), ("Gemm", 1)}
_POINTWISE = {
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Concat",
    "Where",
    "Expand",
    "Slice",
    "Gather",
    "Unsqueeze",
}
_LIMITS = {"Max", "Min"}
_ARITHMETIC = {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Where", "Less", "Greater", "Equal"}
_MOVES = {
    "Identity", "Cast", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Slice", "Clip", "Pad",
    "Resize", "Flatten",
}  # fmt: skip
_RECURRENT = {"LSTM", "GRU", "RNN"}
_LAYERS = {"Conv", "Gemm", "MatMul", "LSTM", "GRU", "RNN", "ConvTranspose"}
CHANNELS = 4  # of pictures, at most: a tensor of so many numbers is one of a mean or a deviation


def made_by(model: ir.Model) -> set[str]:
    """Return the values that a run is given or makes."""
    made = {v.name or "" for node in model.graph for v in node.outputs}
    return made | {v.name or "" for v in model.graph.inputs}


def _is_zero_product(value: ir.Value) -> bool:
    """W·0 says nothing of W, and has no gradient for it."""
    told = origin.is_product_with_zeros(value.name or "", value.metadata_props)
    return told and value.const_value is not None and not value.const_value.numpy().any()


def _of_statistics(value: ir.Value) -> bool:
    """A factor or a term of a normalisation that is frozen, with buffers alone; in a layer's weights it is folded."""
    names = origin.folded_from(value.metadata_props)
    running = any(n.endswith(("running_mean", "running_var")) for n in names)
    return running and {n.op_type for n, _ in value.uses()} <= {"Mul", "Add", "Sub", "Div"}


def _becomes_statistic(node: ir.Node) -> bool:
    """Repeated for every row, which makes an InstanceNorm of a batch normalisation, and nothing else."""
    if node.op_type not in ("Expand", "Tile", "Reshape") or node.domain:
        return False
    uses = list(node.outputs[0].uses())
    return bool(uses) and all(
        (n.op_type == "BatchNormalization" and i >= 3) or _becomes_statistic(n) for n, i in uses
    )


def is_silent(value: ir.Value) -> bool:
    """A factor of 0 in an initializer: nobody writes such a setting, and networks begin with such a weight."""
    tensor, uses = value.const_value, list(value.uses())
    alone = tensor is not None and value.is_initializer() and tensor.size == 1
    return alone and all(n.op_type == "Mul" for n, _ in uses) and not tensor.numpy().any()


def _is_tensorflows(value: ir.Value) -> bool:
    """A number that tf2onnx named and somebody wrote down: the 0.2 of a hard sigmoid; no bias of 0, no scale of 1."""
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.size != 1 or not origin.is_tensorflows(value.name or ""):
        return False
    number = float(tensor.numpy().item())
    return number not in (0.0, 1.0) and patterns.is_round(number)


def _is_uniform(value: ir.Value) -> bool:
    """All elements are one number."""
    array = value.const_value.numpy() if value.const_value is not None else None
    return array is not None and patterns.is_uniform(array)


def _preparing(model: ir.Model) -> Iterable[ir.Value]:
    """Yield the tensors that shift and scale a float input before any layer.

    What an input is divided by, or what is subtracted from it, is not a weight, nor is what replaces
    NaN in it; nor is a factor or a term where a picture's channels have one each.
    """
    waiting = [v for v in model.graph.inputs if v.dtype is not None and v.dtype.is_floating_point()]
    shifted: set[ir.Value] = set()  # a factor behind the mean is the inverse of the deviation
    if not any(n.op_type in _LAYERS for n in model.graph):
        return
    while waiting:
        value = waiting.pop()
        for node, index in value.uses():
            if node.op_type in _MOVES and index == 0 and not node.domain:
                waiting.append(node.outputs[0])
                continue
            if node.op_type == "Concat" and all(
                v.is_graph_input() for v in node.inputs if _floats(v)
            ):
                waiting.append(node.outputs[0])
                continue
            if node.op_type == "Where" and index == 2 and node.inputs[0].producer() is not None:
                if node.inputs[0].producer().op_type == "IsNaN":
                    yield node.inputs[1]
                    waiting.append(node.outputs[0])
                continue
            other = next((v for v in node.inputs if v is not value and v is not None), None)
            if node.op_type not in ("Sub", "Div", "Mul", "Add") or other is None:
                continue
            if ir.convenience.get_const_tensor(other) is None:
                continue
            size = int(np.prod([int(d) for d in other.shape])) if other.shape is not None else 0
            picture = value.shape is not None and len(value.shape) == 4 and size <= CHANNELS
            scaled = node.op_type == "Mul" and value in shifted
            if picture or scaled or (node.op_type in ("Sub", "Div") and index == 0):
                yield other
                waiting.append(node.outputs[0])
                if node.op_type == "Sub":
                    shifted.add(node.outputs[0])


def _floats(value: ir.Value) -> bool:
    """Whether a part of a row of columns is numbers of its own, not an encoded word."""
    waiting = value
    while (node := waiting.producer()) is not None and node.op_type in ("Flatten", "Cast"):
        waiting = node.inputs[0]
    return node is None or node.op_type != "OneHotEncoder"
