"""The layers of a model that can carry a branch: what they read, what they make, what they are called.

A layer is Y = X·W in one of many forms: a product with a float matrix, with integers and their scales, a
convolution, rows of a table. A weight that several nodes read is one layer with several places.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxgrad.errors import AdapterError
from onnxgrad.graph.dynamic import MICROSOFT, dynamic_ends
from onnxgrad.model.origin import listed

_PASSING = ("Cast", "Identity")  # between a weight and its product


@dataclass
class Place:
    """One use of a layer: `y` is made from `x` by `node`, and nodes behind it where `y` is not its own."""

    node: ir.Node
    x: ir.Value
    y: ir.Value


@dataclass
class Weight:
    """A matrix as the model keeps it.

    transposed: it is kept as [out, in]. factor: the node multiplies by it. form: of its numbers, as
    people call it ("float32", "4-bit", "8-bit"). read: what the node reads, behind Cast and the like.
    """

    value: ir.Value
    transposed: bool = False
    factor: float = 1.0
    form: str = "float32"
    read: ir.Value | None = None

    @property
    def is_float(self) -> bool:
        """Say whether a change of the weight can be written into the weight itself."""
        return self.form in ("float32", "float64", "float16", "bfloat16")


@dataclass
class Layer:
    """kind: "linear", "conv", "embedding", or "packed" for the product inside an Attention node."""

    kind: str
    fan_in: int
    fan_out: int
    weight: Weight
    places: list[Place]
    kernel: tuple[int, ...] = ()
    name: str = ""
    names: set[str] = field(default_factory=set)  # all by which a target may mean it

    @property
    def size(self) -> int:
        """The numbers in the weight."""
        total = self.fan_in * self.fan_out
        for k in self.kernel:
            total *= k
        return total

    def ranks(self, r: int) -> int:
        """The numbers in a branch of rank r."""
        return (self.size // self.fan_out + self.fan_out) * r


def find(model: ir.Model) -> list[Layer]:
    """Return every layer of the main graph that can carry a branch, in the order of the graph."""
    layers: dict[tuple[str, ir.Value], Layer] = {}
    for node in model.graph:
        finder = _FINDERS.get((node.domain, node.op_type))
        for layer in finder(node) if finder else ():
            known = layers.setdefault((layer.kind, layer.weight.value), layer)
            if known is not layer:
                known.places += layer.places
    found = list(layers.values())
    _give_names(found)
    return found


# ---- forms


def _float_form(value: ir.Value) -> str:
    return {ir.DataType.FLOAT: "float32", ir.DataType.DOUBLE: "float64"}.get(
        value.dtype, value.dtype.name.lower()
    )


def _constant(value: ir.Value | None) -> Weight | None:
    """Return the weight behind a value: itself, or behind Transpose, Cast and DequantizeLinear."""
    transposed, form, read = False, None, value
    while value is not None:
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None:
            if len(tensor.shape) != 2 and (transposed or form):
                return None
            value.dtype, value.shape = tensor.dtype, ir.Shape(tensor.shape)
            return Weight(value, transposed, 1.0, form or _float_form(value), read)
        node = value.producer()
        if node is None or node.domain:
            return None
        if node.op_type == "Transpose":
            perm = node.attributes.get("perm")
            if perm is not None and list(perm.value) != [1, 0]:
                return None
            transposed = not transposed
        elif node.op_type == "DequantizeLinear":
            kind = node.inputs[0].dtype
            form = "4-bit" if kind in (ir.DataType.INT4, ir.DataType.UINT4) else "8-bit"
        elif node.op_type not in _PASSING:
            return None
        value = node.inputs[0]
    return None


def _attribute(node: ir.Node, name: str, default):
    return node.attributes[name].value if name in node.attributes else default


def _linear(node: ir.Node, weight: Weight | None, kind: str = "linear") -> Iterator[Layer]:
    """A product with a matrix [in, out], or [out, in] where `weight` says so."""
    if weight is None or weight.value.shape is None or len(weight.value.shape) != 2:
        return
    sizes = [int(d) for d in weight.value.shape]
    if weight.transposed:
        sizes.reverse()
    yield Layer(kind, *sizes, weight, [Place(node, node.inputs[0], node.outputs[0])])


def _matmul(node: ir.Node) -> Iterator[Layer]:
    yield from _linear(node, _constant(node.inputs[1]))


def _gemm(node: ir.Node) -> Iterator[Layer]:
    if _attribute(node, "transA", 0):
        return
    weight = _constant(node.inputs[1])
    if weight is not None:
        weight.transposed ^= bool(_attribute(node, "transB", 0))
        weight.factor = float(_attribute(node, "alpha", 1.0))
        yield from _linear(node, weight)


def _conv(node: ir.Node) -> Iterator[Layer]:
    weight = _constant(node.inputs[1])
    if weight is not None and _attribute(node, "group", 1) == 1 and len(weight.value.shape) >= 3:
        fan_out, fan_in, *kernel = (int(d) for d in weight.value.shape)
        place = Place(node, node.inputs[0], node.outputs[0])
        yield Layer("conv", fan_in, fan_out, weight, [place], tuple(kernel))


def _gather(node: ir.Node) -> Iterator[Layer]:
    if _attribute(node, "axis", 0) != 0:
        return
    weight = _constant(node.inputs[0])
    if weight is None or weight.transposed or len(weight.value.shape) != 2:
        return
    if weight.value.dtype is not None and weight.value.dtype.numpy().kind in "fiu":
        rows, size = (int(d) for d in weight.value.shape)
        if weight.is_float or weight.form != "float32":
            place = Place(node, node.inputs[1], node.outputs[0])
            yield Layer("embedding", rows, size, weight, [place])


def _packed(node: ir.Node) -> Iterator[Layer]:
    """Attention makes Q, K and V by one product: input·weights + bias."""
    yield from _linear(node, _constant(node.inputs[1]), "packed")


def _blocks(form: Callable[[ir.Node], str]) -> Callable[[ir.Node], Iterator[Layer]]:
    def found(node: ir.Node) -> Iterator[Layer]:
        value = node.inputs[1]
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None:
            sizes = [int(node.attributes[n].value) for n in ("K", "N")]
            if min(sizes) < 1 or math.prod(sizes) > 8 * tensor.nbytes:  # of at least one bit each
                raise AdapterError(
                    f"lora: {node.op_type} {node.name!r} says K = {sizes[0]} and N = {sizes[1]}, and its weight "
                    f"has {tensor.nbytes:,} bytes"
                )
            weight = Weight(value, True, 1.0, form(node))
            yield Layer("linear", *sizes, weight, [Place(node, node.inputs[0], node.outputs[0])])

    return found


def _dynamic(node: ir.Node) -> Iterator[Layer]:
    ends = dynamic_ends(node)
    tensor = ir.convenience.get_const_tensor(node.inputs[1])
    if ends is None or tensor is None:
        return
    x, y, _ = ends
    weight = Weight(node.inputs[1], False, 1.0, "8-bit")
    weight.value.dtype, weight.value.shape = tensor.dtype, ir.Shape(tensor.shape)
    place = [Place(node, x, y)]
    if node.op_type == "MatMulInteger" and len(tensor.shape) == 2:
        yield Layer("linear", *(int(d) for d in tensor.shape), weight, place)
    elif node.op_type == "ConvInteger" and _attribute(node, "group", 1) == 1:
        fan_out, fan_in, *kernel = (int(d) for d in tensor.shape)
        yield Layer("conv", fan_in, fan_out, weight, place, tuple(kernel))


def _bytes(node: ir.Node) -> Iterator[Layer]:
    """DynamicQuantizeMatMul: the same as one operator."""
    tensor = ir.convenience.get_const_tensor(node.inputs[1])
    if tensor is not None and len(tensor.shape) == 2:
        weight = Weight(node.inputs[1], False, 1.0, "8-bit")
        place = [Place(node, node.inputs[0], node.outputs[0])]
        yield Layer("linear", *(int(d) for d in tensor.shape), weight, place)


_FINDERS: dict[tuple[str, str], Callable[[ir.Node], Iterator[Layer]]] = {
    ("", "MatMul"): _matmul,
    ("", "Gemm"): _gemm,
    ("", "Conv"): _conv,
    ("", "Gather"): _gather,
    ("", "MatMulInteger"): _dynamic,
    ("", "ConvInteger"): _dynamic,
    (MICROSOFT, "DynamicQuantizeMatMul"): _bytes,
    (MICROSOFT, "Attention"): _packed,
    (MICROSOFT, "MatMulNBits"): _blocks(lambda n: f"{_attribute(n, 'bits', 4)}-bit"),
    (MICROSOFT, "MatMulBnb4"): _blocks(lambda n: "4-bit"),
}


# ---- names

_ANONYMOUS = re.compile(r"(onnx::\w+|val_\d+|_?[vt]?\d+|/.*|.*/.*)")
_SUFFIX = re.compile(r"(_DQ)?_Q\d+(G\d+)?$|_Bnb4$|_quantized$|_fp16$")
_TAIL = re.compile(r"(\.(MatMul|Gemm|Conv))?\.(weight|kernel)(_t|_T)?$")
_SCOPES = "pkg.torch.onnx.name_scopes"  # torch.onnx writes the modules that a node comes from


def _give_names(layers: list[Layer]) -> None:
    """Call each layer by the module it comes from, as peft does.

    Where two have one weight, as a table of tokens and the head that reads it, the later is called by its node.
    """
    taken: set[str] = set()
    for layer in layers:
        node, weight = layer.places[0].node, layer.weight.value.name
        plain = _SUFFIX.sub("", weight)
        own, other = _module(plain, node), _module("", node)
        numbered = (f"{own}.{i}" for i in range(2, len(layers) + 2))
        layer.name = next(n for n in (own, other, *numbered) if n and n not in taken)
        taken.add(layer.name)
        layer.names = {layer.name, *(p.node.name for p in layer.places if p.node.name)}
        if layer.name == own:
            layer.names |= {weight, plain}


def _module(weight: str, node: ir.Node) -> str:
    if _TAIL.search(weight) and not weight.startswith(("/", "onnx::")):
        return _like_peft(_TAIL.sub("", weight))
    if weight and not _ANONYMOUS.fullmatch(weight):
        return _like_peft(weight)
    scopes = [s for s in listed(node.metadata_props.get(_SCOPES, "")) if s]
    if len(scopes) > 1:
        return scopes[-2]
    if "/" in (node.name or "").strip("/"):
        return _like_peft(".".join(node.name.strip("/").split("/")[:-1]))
    return weight or node.name or ""


def _like_peft(name: str) -> str:
    """Some builders of decoders say `attn` where the modules are called `self_attn`."""
    return re.sub(r"^(model\.layers\.\d+)\.attn\.(?=(q|k|v|o|qkv)_proj$)", r"\1.self_attn.", name)
