"""Types and shapes of operators of which ONNX's inference knows nothing.

They are onnxruntime's own (com.microsoft) and those of classical models (ai.onnx.ml). Files that
onnxruntime's optimiser saved have no record of what lies between fused nodes, so the ranks that
rules need are told from here. Some are a standard operator with something added; of the others the
shapes are written as contracts write them.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from onnxgrad.graph.symbols import Dims, Result, axes, bound, dims_of

DOMAINS = ("com.microsoft", "ai.onnx.ml")

# operator -> (the standard operator whose shape it has, the number of inputs they share)
LIKE = {
    "FusedConv": ("Conv", 3),
    "FusedGemm": ("Gemm", 3),
    "MatMulIntegerToFloat": ("MatMul", 2),
    "DynamicQuantizeMatMul": ("MatMul", 2),
}

# operator -> shapes of its inputs, shapes of its outputs; all have the type of the first float input
_SKIP = ("[outer..., H]", ""), ("[outer..., H]", "", "", "[outer..., H]")
_SAME = ("[shape...]",), ("[shape...]",)
SHAPES = {
    "SimplifiedLayerNormalization": _SAME,
    **dict.fromkeys(("Gelu", "QuickGelu", "FastGelu", "BiasGelu", "RotaryEmbedding"), _SAME),
    **dict.fromkeys(("Scaler", "Normalizer", "Imputer", "Binarizer"), _SAME),
    **dict.fromkeys(("BiasSoftmax", "BiasDropout", "BitmaskDropout"), _SAME),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _SKIP),
    "EmbedLayerNormalization": (
        ("[N, S]", "[N, S]", "[words, H]"), ("[N, S, H]", "[N]", "[N, S, H]"),
    ),
    "MultiHeadAttention": (("[N, S, D]", "[N, L, D]", "[N, L, V]"), ("[N, S, V]",)),
}  # fmt: skip
_INT32_OUTPUTS = {("EmbedLayerNormalization", 1)}


def is_known(node: ir.Node) -> bool:
    """Say whether shapes of a node can be told here."""
    known = node.op_type in LIKE or node.op_type in SHAPES or node.op_type in _OTHERS
    # onnxruntime saves this one in ONNX's own domain
    foreign = not node.domain and node.op_type == "SimplifiedLayerNormalization"
    return known and (node.domain in DOMAINS or foreign)


def results(node: ir.Node, standard: Callable[[ir.Node], list[Result]]) -> list[Result]:
    """Return (dtype, shape) of every output; `standard` does so for a node of ONNX."""
    dtype = next(
        (v.dtype for v in node.inputs if v is not None and v.dtype and v.dtype.is_floating_point()),
        None,
    )
    if node.op_type in LIKE:
        op_type, count = LIKE[node.op_type]
        return [(dtype, _standard_shape(node, op_type, count, standard))]
    if node.op_type in _OTHERS:
        return [(dtype, _OTHERS[node.op_type](node))]
    given, made = SHAPES[node.op_type]
    symbols = bound((axes(spec), dims_of(v)) for spec, v in zip(given, node.inputs, strict=False))
    found = []
    for i, spec in enumerate(made[: len(node.outputs)]):
        kind = ir.DataType.INT32 if (node.op_type, i) in _INT32_OUTPUTS else dtype
        found.append((kind, symbols.shape(axes(spec)) if spec else None))
    return found


def _standard_shape(node: ir.Node, op_type: str, count: int, standard) -> Dims | None:
    attributes = [a for a in node.attributes.values() if not a.name.startswith("activation")]
    inputs = [v and _float_copy(v) for v in node.inputs[:count]]
    return standard(ir.Node("", op_type, inputs, attributes, num_outputs=1))[0][1]


def _float_copy(value: ir.Value) -> ir.Value:
    """A value that knows no node: of the same shape, and of a type that every operator takes."""
    return ir.Value(name=value.name, shape=value.shape, type=ir.TensorType(ir.DataType.FLOAT))


def _flag(node: ir.Node, name: str) -> bool:
    return name in node.attributes and bool(node.attributes[name].value)


def _fused_matmul(node: ir.Node) -> Dims | None:
    """[…, M, K]·[…, K, N], each with its last two axes swapped where its flag says so."""
    shapes = [dims_of(v) for v in node.inputs[:2]]
    if None in shapes or min(map(len, shapes)) < 2:
        return None
    for i, letter in enumerate("AB"):
        order = list(range(len(shapes[i])))
        if _flag(node, f"transBatch{letter}"):
            order = [*order[1:-1], 0, order[-1]]
        if _flag(node, f"trans{letter}"):
            order[-2:] = order[:-3:-1]
        shapes[i] = tuple(shapes[i][j] for j in order)
    rank = max(map(len, shapes))
    batches = [(1,) * (rank - len(s)) + s[:-2] for s in shapes]
    batch = tuple(
        b if a == 1 else a if b == 1 or a == b else None for a, b in zip(*batches, strict=True)
    )
    return (*batch, shapes[0][-2], shapes[1][-1])


def _attention(node: ir.Node) -> Dims | None:
    """[N, S, the width of V]: a third of the weights' columns, or the last of qkv_hidden_sizes."""
    x, weights = (dims_of(v) for v in node.inputs[:2])
    if x is None or len(x) != 3:
        return None
    sizes = node.attributes.get("qkv_hidden_sizes")
    if sizes is not None:
        return (*x[:2], int(sizes.value[2]))
    columns = weights[1] if weights is not None and len(weights) == 2 else None
    return (*x[:2], columns // 3 if isinstance(columns, int) else None)


def _nbits(node: ir.Node) -> Dims | None:
    """[…, K] -> […, N]."""
    x = dims_of(node.inputs[0])
    return None if x is None else (*x[:-1], int(node.attributes["N"].value))


def _group_query(node: ir.Node) -> Dims | None:
    """[N, S, heads·size]; with packed keys and values the input is wider."""
    query = dims_of(node.inputs[0])
    if query is None or len(query) != 3:
        return None
    heads, kv_heads = (int(node.attributes[n].value) for n in ("num_heads", "kv_num_heads"))
    packed = len(node.inputs) < 2 or node.inputs[1] is None
    parts = heads + 2 * kv_heads if packed else heads
    return (*query[:2], query[2] // parts * heads if isinstance(query[2], int) else None)


def _gathered_blocks(node: ir.Node) -> Dims | None:
    """Rows of a table, [indices…, size]; two or more numbers may share a byte."""
    data, indices = (dims_of(v) for v in node.inputs[:2])
    axis = node.attributes.get("gather_axis")
    if data is None or indices is None or (axis is not None and axis.value != 0):
        return None
    bits = node.attributes.get("bits")
    shared = 8 // (4 if bits is None else int(bits.value))
    wide = node.inputs[0].dtype == ir.DataType.UINT8 and isinstance(data[-1], int)
    return (*indices, *data[1:-1], data[-1] * shared if wide else data[-1])


_OTHERS: dict[str, Callable[[ir.Node], Dims | None]] = {
    "FusedMatMul": _fused_matmul,
    "Attention": _attention,
    "MatMulNBits": _nbits,
    "MatMulBnb4": _nbits,
    "GroupQueryAttention": _group_query,
    "GatherBlockQuantized": _gathered_blocks,
}
