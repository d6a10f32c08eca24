"""What a file does not tell of the network that it was: said wherever the file trains as something else."""

from __future__ import annotations

import math
import re

import onnx_ir as ir

from onnxgrad.model import origin
from onnxgrad.model.patterns import is_round
from onnxgrad.model.roles import FROZEN, SCALES, Tensor, made_by
from onnxgrad.notes import Note

DIGITS = 4  # of a number that somebody wrote down, or of what it is the root or the inverse of


def doubts(model: ir.Model, tensors: list[Tensor]) -> list[Note]:
    """One record for each doubt; `tensors` as judged."""
    weights = {t.name for t in tensors if t.trained}
    found = {
        "folded batch norm": _folded_batch_norm(model),
        "perhaps buffers": _perhaps_buffers(model, weights),
        "perhaps parameters": _perhaps_parameters(model, tensors),
        "computed weights": _computed_weights(model, weights),
        "left out": _left_out(model),
        "power iteration": _power_iteration(model),
        "integer weights": _integer_weights(model, tensors),
    }
    return [Note(kind, "", text) for kind, text in found.items() if text]


def _by_the_older_exporter(model: ir.Model) -> bool:
    """PyTorch's, which writes parameters and buffers alike."""
    told = any(origin.KIND in v.metadata_props for v in model.graph.initializers.values())
    return (model.producer_name or "").startswith("pytorch") and not told


def _folded_batch_norm(model: ir.Model) -> str:
    """Say it as the exporter notes it; or as names tell it, which a convolution's weights lose; or guess."""
    layers = [n for n in model.graph if n.op_type in _FOLDABLE]
    told = [n for n in layers if "batch_norm" in origin.call_of(n.metadata_props)[0]]
    if told:
        count = (
            "1 batch normalisation was"
            if len(told) == 1
            else f"{len(told)} batch normalisations were"
        )
        return f"{count} folded by the exporter into the {_FOLDED}"
    convs = [n for n in layers if n.op_type != "Gemm"]
    unnamed = [n for n in convs if origin.is_generated(n.inputs[1].name or "")]
    if (
        unnamed
        and _by_the_older_exporter(model)
        and all(n.inputs[1].is_initializer() for n in unnamed)
    ):
        count = f"{len(unnamed)} of {len(convs)} convolutions"
        return f"the weights of {count} have lost their names: batch normalisations were folded into the {_FOLDED}"
    if (model.producer_name or "").startswith("pytorch"):
        return ""
    kinds = [n.op_type for n in model.graph]
    if "Conv" not in kinds or "BatchNormalization" in kinds or "GroupNormalization" in kinds:
        return ""
    convs = [n for n in model.graph if n.op_type == "Conv"]
    if len(convs) < 4 or not all(len(n.inputs) > 2 and n.inputs[2] is not None for n in convs):
        return ""
    return (
        "every convolution has a bias and there is no BatchNormalization: it was probably folded into the weights, "
        "which train, but with a smaller learning rate"
    )


_INTEGERS = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4)


def _integer_weights(model: ir.Model, tensors: list[Tensor]) -> str:
    """Integers that stay as they are: those that train through their rounding are floats in what is trained.

    An adapter says itself what it leaves as it is.
    """
    if any(t.kind == FROZEN for t in tensors):
        return ""
    names = [
        name
        for name, value in model.graph.initializers.items()
        if value.dtype in _INTEGERS and value.const_value.size > 1 and value.uses()
        and not all((node.op_type, i) in SCALES for node, i in value.uses())
    ]  # fmt: skip
    if not names:
        return ""
    count = "1 weight is" if len(names) == 1 else f"{len(names):,} weights are"
    return (
        f"{count} of an integer type (first: {names[0]!r}) and cannot be trained; start from the float model and "
        "quantize afterwards"
    )


_FOLDABLE = ("Conv", "ConvTranspose", "Gemm")
_FOLDED = "layers before them, which train as such, without statistics of the batch and with a smaller learning rate"


# What the older exporter calls the weights of layers that it transposed or put together.
_OF_A_LAYER = re.compile(
    r"onnx::(MatMul|Gemm|Conv|ConvTranspose|LSTM|GRU|RNN|PRelu)_\d+|val_\d+|/.*"
)


def _perhaps_buffers(model: ir.Model, weights: set[str]) -> str:
    """PyTorch's older exporter writes parameters and buffers alike; the newer one what it computes from them."""
    tensors = {n: v for n, v in model.graph.initializers.items() if n in weights and v.uses()}
    if not (model.producer_name or "").startswith("pytorch"):
        return ""
    if _by_the_older_exporter(model):
        own = [n for n in tensors if _OF_A_LAYER.match(n) or origin.is_a_layers(n)]
        names = [n for n, v in tensors.items() if n not in own and not _of_a_norm(v)]
    else:
        known = made_by(model)
        of = {n: origin.folded_parameters(v.metadata_props, known) for n, v in tensors.items()}
        names = [n for n, by in of.items() if by and not any(map(origin.is_a_layers, by))]
    if not names:
        return ""
    shown = ", ".join(map(repr, names[:3])) + (" …" if len(names) > 3 else "")
    return (
        f"the exporter does not tell parameters from buffers: {shown} {'trains' if len(names) == 1 else 'train'}, "
        f"and --trainable all,-{names[0]} leaves {names[0]!r} out"
    )


def _of_a_norm(value: ir.Value) -> bool:
    """A scale or a bias of GroupNorm, which the older exporter writes as InstanceNormalization, Mul and Add."""
    waiting = [n for n, _ in value.uses()]
    for node in waiting:  # which grows
        if node.op_type == "InstanceNormalization":
            return True
        if node.op_type in ("Mul", "Add", "Reshape") and len(waiting) < 8:
            before = (v.producer() for v in node.inputs if v is not None)
            waiting += [n for n in before if n is not None]
    return False


def _perhaps_parameters(model: ir.Model, tensors: list[Tensor]) -> str:
    """Elements of parameters, which the older exporter writes as numbers without a name, as it does with settings."""
    if not _by_the_older_exporter(model):
        return ""
    initializers = model.graph.initializers
    numbers = [
        t.name
        for t in tensors
        if t.kind == "setting" and t.size == 1 and t.possible and t.name in initializers
    ]
    told = _names_constants(model)
    odd = [
        n
        for n in numbers
        if (told and n.startswith("onnx::"))
        or not _is_written(float(initializers[n].const_value.numpy().item()))
    ]
    if not odd:
        return ""
    shown = ", ".join(map(repr, odd[:3])) + (" …" if len(odd) > 3 else "")
    verb = "is" if len(odd) == 1 else "are"
    return (
        f"the exporter does not tell elements of parameters from settings: {shown} {verb} not trained, and "
        f"--trainable all,{odd[0]} trains {odd[0]!r}"
    )


def _names_constants(model: ir.Model) -> bool:
    """The older exporter of PyTorch 2: a setting has the name of its Constant, also in a file that was simplified.

    A number with a name like `onnx::Mul_9` was then computed from a parameter or a buffer, whatever it is.
    """
    major = (model.producer_version or "").partition(".")[0]
    return major.isdigit() and int(major) >= 2


def _is_written(number: float) -> bool:
    """Whether it is a setting's: a number of few digits, or its root, inverse or logarithm."""
    if not 1e-9 < abs(number) < 1e9:
        return True
    powers = [number, number**2, 1 / number, 1 / number**2]
    powers += [math.exp(number)] if abs(number) < 20 else []
    powers += [k * number for k in (1 / math.pi, math.pi / 2, 1 / math.log(2), math.log(2))]
    return any(is_round(x, DIGITS) for x in powers)


def _computed_weights(model: ir.Model, weights: set[str]) -> str:
    """Weight normalisation and the like, which exporters of PyTorch compute beforehand; the older one does not tell."""
    known = made_by(model)
    made = {
        name: origin.computed_by(name, v.metadata_props, known)
        for name, v in model.graph.initializers.items()
        if name in weights
    }
    made = {name: by for name, by in made.items() if by[0]}
    if not made:
        return _without_names(model, weights) if _by_the_older_exporter(model) else ""
    name, (parameter, formula) = next(iter(made.items()))
    count = "1 tensor was" if len(made) == 1 else f"{len(made):,} tensors were"
    of = f" from {parameter!r}, by {formula}" if parameter != name else ", from what is not told"
    return f"{count} computed by the exporter (first: {name!r}{of}): what trains is the result, without the formula"


# What the older exporter calls results that stand where a layer's own weight would have its name.
_OF_A_FORMULA = re.compile(
    r"onnx::(Add|Sub|Mul|Div|Einsum|Gemm|Reciprocal|Sqrt|Neg|Exp|Log|Sigmoid|Tanh|Sin|Cos)_\d+"
)


def _is_scale(value: ir.Value) -> bool:
    """One factor for each channel, which exporters give the shape that it needs."""
    wide = [d for d in value.const_value.shape if d > 1]
    return len(wide) < 2 and all(n.op_type == "Mul" for n, _ in value.uses())


def _is_bias(value: ir.Value) -> bool:
    """A layer's, which is a part of a longer one: queries, keys and values have their biases in one parameter."""
    inputs = (v for n, _ in value.uses() for v in n.inputs if v is not None and v is not value)
    others = [v.producer() for v in inputs]
    alone = len(value.const_value.shape) == 1
    return alone and all(n is not None and n.op_type == "MatMul" for n in others)


def _has_no_name(value: ir.Value) -> bool:
    """Not as layers have their weights: a product's right side is a layer's that was transposed."""
    name = value.name or ""
    if origin.is_generated(name) and all(
        n.op_type == "BatchNormalization" for n, _ in value.uses()
    ):
        return True
    if origin.is_generated(name) and all(n.op_type == "MatMul" and not i for n, i in value.uses()):
        return True
    as_usual = _is_scale(value) or _is_bias(value) or _of_a_norm(value)
    return bool(_OF_A_FORMULA.fullmatch(name)) and not as_usual


def _without_names(model: ir.Model, weights: set[str]) -> str:
    tensors = model.graph.initializers
    found = [n for n in tensors if n in weights and _has_no_name(tensors[n])]
    if not found:
        return ""
    count = "1 tensor has" if len(found) == 1 else f"{len(found):,} tensors have"
    return (
        f"{count} no name of a parameter (first: {found[0]!r}): the exporter computed it, or gave a parameter another "
        "shape; what trains is the result, without a formula if there was one"
    )


def _left_out(model: ir.Model) -> str:
    """Products with 1 and sums with 0, which PyTorch's newer exporter removes; calls still name their results."""
    graph = model.graph
    known = {v.name for n in graph for v in n.outputs} | {v.name for v in graph.inputs}
    known.update(graph.initializers)
    found: dict[str, str] = {}
    for node in graph:
        values = origin.call_of(node.metadata_props)[1]
        others = {re.sub(r"_\d+$", "", v.name or "") for v in node.inputs if v is not None}
        for value in values:
            call = re.fullmatch(r"(mul|div|add|sub)(_\d+)?", value)
            if call and value not in known and call[1] not in others:
                found.setdefault(value, node.name or node.op_type)
    if not found:
        return ""
    name, node = next(iter(found.items()))
    count = "1 sum or product" if len(found) == 1 else f"{len(found)} sums or products"
    return (
        f"{count} with 0 or 1 {'is' if len(found) == 1 else 'are'} not in the file (first: {name!r} before {node!r}): "
        "the exporter left it out, and if that number was a parameter, it does not train"
    )


def _power_iteration(model: ir.Model) -> str:
    """Spectral normalisation: PyTorch's layers refine its two vectors in every step of training."""
    names = model.graph.initializers
    found = [n for n in names if origin.matrix_of_spectral(n) in names]
    if not found:
        return ""
    return (
        f"{found[0]!r} is of a spectral normalisation: its vectors stay as they are, and PyTorch refines them in every "
        "step of training"
    )
