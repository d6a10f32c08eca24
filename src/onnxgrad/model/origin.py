"""What exporters leave in a file about where its tensors come from: modules, parameters, buffers.

PyTorch's newer exporter writes the call that became a node, with its parameters by name, and for each
tensor whether it was a parameter or a buffer. The older one writes the module into the name of a
node, and an Identity node for every parameter that it merged with an equal one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable, Mapping

import onnx

SCOPES = "pkg.torch.onnx.name_scopes"
CALL = "pkg.torch.onnx.fx_node"
KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
ORIGINAL = "pkg.torch.onnx.original_node_name"
FOLDED = "pkg.onnxscript.optimizer.folded_from"
MOST_LISTED = 10_000  # letters of a list: no exporter writes more, and Python's parser is not made for strangers

_GENERATED = re.compile(
    r"(onnx::\w+_\d+|val_\d+|\d+|_?scalar_tensor\w*|c_lifted\w*|lifted\w*|/.*|.*_output_\d+)"
)

_RECURRENT = {1: "W", 2: "R", 3: "B", 5: "initial_h", 6: "initial_c"}
# What a layer calls the tensors that its node reads, by input.
_ROLES = {
    "BatchNormalization": {1: "weight", 2: "bias", 3: "running_mean", 4: "running_var"},
    "PRelu": {1: "weight"}, "Gather": {0: "weight"}, "Mul": {0: "weight", 1: "weight"},
    "Add": {0: "bias", 1: "bias"}, "BiasGelu": {1: "bias"}, "FastGelu": {1: "bias"},
    "LSTM": _RECURRENT, "GRU": _RECURRENT, "RNN": _RECURRENT,
    "SkipLayerNormalization": {2: "weight", 3: "bias", 4: "layer_bias"},
    "SkipSimplifiedLayerNormalization": {2: "weight", 3: "layer_bias"},
    "EmbedLayerNormalization": {5: "weight", 6: "bias"},
}  # fmt: skip
_LAYER = {1: "weight", 2: "bias"}


def is_generated(name: str) -> bool:
    """Say whether an exporter made up a name: it is then not a parameter's own."""
    return _GENERATED.fullmatch(name) is not None


def is_tensorflows(name: str) -> bool:
    """Say whether tf2onnx made up a name: of a constant of its own, or of what it computed beforehand.

    >>> [is_tensorflows(n) for n in ("const_fold_opt__287", "const__12", "model/dense/BiasAdd/ReadVariableOp:0")]
    [True, True, False]
    """
    return re.fullmatch(r"const(_fold_opt)?__\d+", name) is not None


def is_paddles(name: str) -> bool:
    """Say whether PaddlePaddle named a parameter so: layer, number, which (conv2d_0.w_0, affine_block_12.b_0)."""
    return re.fullmatch(r"\w+_\d+\.[wb]_\d+", name) is not None


_OF_LAYERS = re.compile(
    r"(.*\.)?((weight|bias)(_(ih|hh|hr)(_l\d+)?(_reverse)?)?|in_proj_(weight|bias)|[qkv]_proj_weight|bias_[kv]"
    r"|weight_(g|orig)|original\d?)"
)


def is_a_layers(name: str) -> bool:
    """Say whether a name is one that PyTorch's own layers give their parameters; buffers have others.

    >>> [is_a_layers(n) for n in ("fc.weight", "rnn.weight_ih_l0_reverse", "in_proj_bias", "freqs", "logits_bias")]
    [True, True, True, False, False]
    """
    return _OF_LAYERS.fullmatch(name) is not None


def matrix_of_spectral(name: str) -> str:
    """Return the matrix that a vector of PyTorch's spectral normalisation belongs to; "" for other names.

    >>> matrix_of_spectral("conv.weight_u"), matrix_of_spectral("fc.parametrizations.weight.0._v")
    ('conv.weight_orig', 'fc.parametrizations.weight.original')
    """
    old = re.fullmatch(r"(.*)_[uv]", name)
    new = re.fullmatch(r"(.*parametrizations\.\w+)\.\d+\._[uv]", name)
    return f"{new[1]}.original" if new else f"{old[1]}_orig" if old else ""


def properties(entries: Iterable[onnx.StringStringEntryProto]) -> dict[str, str]:
    """Return the metadata of a node or value of a file."""
    return {entry.key: entry.value for entry in entries}


def scope_of(name: str, metadata: Mapping[str, str]) -> str:
    """Return the module that a node belongs to, as PyTorch spells it; "" where nothing tells.

    >>> scope_of("/layers/layers.1/BatchNormalization", {})
    'layers.1'
    >>> scope_of("node_layer_norm_1", {SCOPES: "['', 'blocks.1', 'blocks.1.norm', 'layer_norm_1']"})
    'blocks.1.norm'
    """
    if SCOPES in metadata:
        scopes = listed(metadata[SCOPES])
        return re.sub(r"@\d+", "", scopes[-2]) if len(scopes) > 1 else ""
    if not name.startswith("/"):
        return ""
    path: list[str] = []
    for part in name.split("/")[1:-1]:
        if path and part.startswith(path[-1] + "."):
            path[-1] = part  # `layers` and then `layers.1`: one module and its child
        else:
            path.append(part)
    return ".".join(path)


def parameters_of(metadata: Mapping[str, str]) -> list[str]:
    """Return the parameters and buffers in the call that became a node, as the exporter mangles them."""
    return re.findall(r"%([pb]_\w+)", metadata.get(CALL, ""))


def call_of(metadata: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the function that became a node, and its leading arguments; "" for those that are not values.

    >>> call = "call_function[target=torch.ops.aten.linear.default](args = (%x, %p_w, %p_b), kwargs = {})"
    >>> call_of({CALL: f"%y = {call}"})
    ('linear', ['x', 'p_w', 'p_b'])
    """
    found = re.search(
        r"target=torch\.ops\.\w+\.(\w+)\S*\]\(args = \((.*?)\), kwargs", metadata.get(CALL, "")
    )
    if found is None:
        return "", []
    values = [part.strip() for part in re.split(r",(?![^\[(]*[\])])", found[2]) if part.strip()]
    return found[1], [v[1:] if re.fullmatch(r"%\w+", v) else "" for v in values]


def arguments_of(metadata: Mapping[str, str]) -> list[str]:
    """Return every value among the arguments of the call that became a node, those of lists as well.

    >>> call = "call_function[target=torch.ops.aten.cat.default](args = ([%a, %b], 1), kwargs = {})"
    >>> arguments_of({CALL: f"%cat = {call}"})
    ['a', 'b']
    """
    _, mark, rest = metadata.get(CALL, "").partition("](args = (")
    return re.findall(r"%(\w+)", rest.partition("), kwargs")[0]) if mark else []


def result_of(metadata: Mapping[str, str]) -> str:
    """Return what the call that became a node, or one of its steps, makes; "" where no call is noted."""
    found = re.match(r"%(\w+)", metadata.get(CALL, ""))
    return found[1] if found else ""


def padding_of(metadata: Mapping[str, str]) -> int | None:
    """Return the row that a lookup's call names as padding, -1 where it names none; None where no call is noted.

    >>> call = "call_function[target=torch.ops.aten.embedding.default](args = (%p_w, %ids, 3), kwargs = {})"
    >>> padding_of({CALL: f"%e = {call}"}), padding_of({CALL: "%e = " + call.replace(", 3", "")}), padding_of({})
    (3, -1, None)
    """
    found = re.search(
        r"target=torch\.ops\.aten\.embedding\.\S*\(args = \(%\w+, %\w+(?:, (-?\d+))?",
        metadata.get(CALL, ""),
    )
    return None if found is None else int(found[1] or -1)


def role_of(op_type: str, index: int) -> str:
    """Return what a layer calls its input: weight, bias, running_mean …"""
    return _ROLES.get(op_type, _LAYER).get(index, f"input{index}")


def unmangled(token: str, scope: str) -> str:
    """Return a parameter's own name from the exporter's form of it.

    >>> unmangled("p_blocks_1_norm_weight", "blocks.1.norm")
    'blocks.1.norm.weight'
    """
    text = token[2:]
    prefix = scope.replace(".", "_").lower() + "_"  # the exporter lowers all letters
    return f"{scope}.{text[len(prefix) :]}" if scope and text.startswith(prefix) else text


def mangled(name: str) -> str:
    """Return the newer exporter's form of a parameter's own name.

    >>> mangled("blocks.1.Norm.weight")
    'p_blocks_1_norm_weight'
    """
    return "p_" + name.replace(".", "_").lower()


# What a computation begins with that is no parameter's: a parameter may be called `t` or `add`, too.
_MADE = (
    r"val|const|zeros|ones|full|empty|arange|linspace|eye|scalar_tensor\w*|lift_fresh\w*|full_like|zeros_like"
    r"|ones_like|tmp|int64_m?\d+(_1d)?(_cast)?"  # the last as onnxscript names its numbers
)
_BEGINNINGS = re.compile(rf"({_MADE})(_\d+)?")
# Calls of PyTorch whose results the newer exporter computes beforehand: names that are not a parameter's.
_CALLS = re.compile(
    rf"({_MADE}|expand|repeat|slice|select|getitem|index|gather|unsqueeze|squeeze|view|reshape|permute|transpose"
    r"|t|to|_to_copy|alias|clone|cat|stack|triu|tril|add|sub|mul|div|neg|pow|exp|sin|cos|where|eq|ge|le|gt|lt|rsub"
    r"|reciprocal|embedding|detach|contiguous|flatten|type_as|convert_element_type|logical_not|masked_fill|copy|cast"
    r"|mm|matmul|bmm|dropout)(_\d+)?"
)


def listed(text: str) -> list[str]:
    """Return the words of a list that an exporter wrote down as Python does; none where it is not one."""
    if not text or len(text) > MOST_LISTED:
        return []
    try:
        return [str(word) for word in ast.literal_eval(text)]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return []


def folded_from(metadata: Mapping[str, str]) -> list[str]:
    """Return the values that the newer exporter computed a tensor from; none where it did not, or does not say."""
    return listed(metadata.get(FOLDED, ""))


def is_computed(metadata: Mapping[str, str], made: Container[str] = ()) -> bool:
    """Say whether the newer exporter computed a tensor beforehand, and from no parameter or buffer.

    Of what is still `made` by a run it used the shape alone.
    """
    names = folded_from(metadata)
    # a sum or a mean is a call where it is of ones in the shape of an input; a buffer may be called so, too
    calls = (_CALLS, _FORMULAS) if any(n in made for n in names) else (_CALLS,)
    known = [n for n in names if n in made or any(c.fullmatch(n) for c in calls)]
    return _has_constant(names, made) and len(known) == len(names)


def _has_constant(names: Iterable[str], made: Container[str] = ()) -> bool:
    return any(n in made or _BEGINNINGS.fullmatch(n) for n in names)


_EXPANDS = re.compile(r"(expand|expand_as|repeat|repeat_interleave|tile|broadcast_to)(_\d+)?")


def is_expanded(name: str, metadata: Mapping[str, str]) -> bool:
    """Say whether a tensor that the newer exporter computed repeats what it was computed from."""
    names = folded_from(metadata)
    return bool(names) and any(_EXPANDS.fullmatch(n) for n in [name, *names])


_PRODUCTS = re.compile(r"(linear|addmm)(_\d+)?")


def is_product(name: str, metadata: Mapping[str, str]) -> bool:
    """Say whether the newer exporter computed a tensor as a layer's product: W·h + b for a state of zeros."""
    names = folded_from(metadata)
    return bool(names) and any(_PRODUCTS.fullmatch(n) for n in [name, *names])


def is_product_with_zeros(name: str, metadata: Mapping[str, str]) -> bool:
    """Say whether the newer exporter computed a tensor as W·0, without a bias: the first step from a state of zeros.

    >>> is_product_with_zeros("linear_1", {FOLDED: "['cell.weight', 'zeros_like', 'val_0']"})
    True
    """
    names = folded_from(metadata)
    zeros = any(re.fullmatch(r"(new_)?zeros(_like)?(_\d+)?", n) for n in names)
    return zeros and is_product(name, metadata) and not any("bias" in n for n in names)


def is_one_row(name: str, metadata: Mapping[str, str]) -> bool:
    """Say whether the newer exporter looked up one and the same row of an embedding everywhere: a type of zeros."""
    names = [re.sub(r"_\d+$", "", n) for n in folded_from(metadata)]
    filled = {"zeros", "ones", "full", "zeros_like", "ones_like", "full_like"} & set(names)
    return (
        re.fullmatch(r"embedding(_\d+)?", name) is not None
        and bool(filled)
        and not ({"arange", "cumsum", "add", "sub", "slice", "index"} & set(names))
    )


def learns_nothing(op_type: str, metadata: Mapping[str, str]) -> bool:
    """Say whether a node comes from a normalisation in whose call there is no parameter, or none that the node reads.

    Its scale and bias are then ones and zeros of the newer exporter's own: it writes GroupNorm as an
    InstanceNormalization of groups, and what the channels learn behind it.

    >>> learns_nothing("LayerNormalization", {CALL: "%n = f[target=torch.ops.aten.layer_norm.default](args = (%x,))"})
    True
    """
    call = metadata.get(CALL, "")
    if op_type == "InstanceNormalization" and call_of(metadata)[0] == "group_norm":
        return True
    return re.search(r"target=\S*norm", call) is not None and "%p_" not in call


def same_but_numbers(a: str, b: str) -> bool:
    """Say whether two parameters have the same place in two layers of a list.

    >>> same_but_numbers("encoder.layers.0.linear1.bias", "encoder.layers.1.linear1.bias")
    True
    >>> same_but_numbers("embedding.weight", "head.weight")
    False
    """
    left, right = a.split("."), b.split(".")
    pairs = zip(left, right, strict=False)
    alike = all(x == y or (x.isdigit() and y.isdigit()) for x, y in pairs)
    return a != b and len(left) == len(right) and alike


def of_one_module(a: str, b: str) -> bool:
    """Say whether two names are parameters of one module: nobody ties those.

    >>> of_one_module("cell.bias_ih", "cell.bias_hh")
    True
    >>> of_one_module("embedding.weight", "head.weight")
    False
    """
    left, right = a.rpartition("."), b.rpartition(".")
    return bool(left[0]) and left[0] == right[0] and left[2] != right[2]


_FORMULAS = re.compile(
    r"(div|sqrt|rsqrt|reciprocal|exp|log|sigmoid|tanh|softplus|softmax|linalg_\w+|norm|var|std|mul|add|sub|rsub"
    r"|neg|pow|abs|relu|sum|mean|dot|vdot|mv|mm|matmul|bmm|where|clamp\w*)(_\d+)?"
)


def is_formula(name: str) -> bool:
    """Say whether a value has the name of a call that computes, not of one that only moves numbers."""
    return _FORMULAS.fullmatch(name) is not None


def computed_by(
    name: str, metadata: Mapping[str, str], made: Container[str] = ()
) -> tuple[str, str]:
    """Return a parameter and a formula that the newer exporter computed a tensor from beforehand; "" where it did not.

    The result has the name of the last call. Of what is `made` by a run, or given to it, the shape alone was used.

    >>> computed_by("mul", {FOLDED: "['div', 'linalg_vector_norm', 'conv.original1', 'val_0']"})
    ('conv.original1', 'div')
    >>> computed_by("val_3", {FOLDED: "['fc.weight', 'val_0']"})
    ('', '')
    """
    names = folded_from(metadata)
    # a product with a first state of zeros leaves a bias, under the name of the product
    formulas = [n for n in [*names, name] if _PRODUCTS.fullmatch(n)]
    formulas += [n for n in [*names, name] if _FORMULAS.fullmatch(n)]
    parameters = folded_parameters(metadata, made)
    return (parameters[0], formulas[0]) if formulas and parameters else ("", "")


def renamed(metadata_of_value: str, calls: Iterable[Mapping[str, str]]) -> str:
    """Return what a merged tensor was computed from, for the one of several readers that these calls follow.

    The calls tell the parameters of the same names but for their numbers: those of the second layer, say.

    >>> call = {CALL: "%linear_13 = call_function[target=…](args = (%h, %p_r_bias_hh_l1), kwargs = {})"}
    >>> renamed("['r.bias_hh_l0', 'zeros']", [call])
    "['r.bias_hh_l1', 'zeros']"
    """
    names = listed(metadata_of_value)
    for place, name in enumerate(names):
        own = mangled(name)
        pattern = re.compile(re.sub(r"\d+", r"\\d+", own) + "(_reverse)?")
        for call in calls:
            found = [t for t in parameters_of(call) if pattern.fullmatch(t)]
            if found and re.search(r"\d", own):
                numbers = iter(re.findall(r"\d+", found[0]))
                backwards = pattern.fullmatch(found[0])[1] or ""
                names[place] = re.sub(r"\d+", lambda _, n=numbers: next(n), name) + backwards
                break
    return str(names)


def functions_of(
    name: str, metadata: Mapping[str, str], known: Container[str]
) -> tuple[str, tuple[str, ...]]:
    """Return the only parameter of a tensor that the newer exporter computed, and the `known` functions of it in order.

    No functions where others had a part in it, or more than their names can order.

    >>> functions_of("neg", {FOLDED: "['a_log', 'exp', 'val_3']"}, {"exp", "neg"})
    ('a_log', ('exp', 'neg'))
    >>> functions_of("mul", {FOLDED: "['a_log', 'exp']"}, {"exp", "neg"})
    ('', ())
    """
    calls = {n: re.sub(r"_\d+$", "", n) for n in [*folded_from(metadata), name]}
    steps = [n for n, call in calls.items() if call in known]
    rest = [n for n in calls if n not in steps and not re.fullmatch(r"val_\d+", n)]
    if name not in steps or len(steps) > 2 or len(rest) != 1 or _BEGINNINGS.fullmatch(rest[0]):
        return "", ()
    return rest[0], tuple(calls[n] for n in sorted(steps, key=lambda n: n == name))


def folded_parameters(metadata: Mapping[str, str], made: Container[str] = ()) -> list[str]:
    """Return the parameters and buffers that the newer exporter computed a tensor from.

    Of what is `made` by a run, or given to it, the shape alone was used.
    """
    calls = (_CALLS, _FORMULAS, re.compile(r"(linear|addmm|scaled_dot_product_attention)(_\d+)?"))
    names = [n for n in folded_from(metadata) if n not in made]
    found = [n for n in names if not any(c.fullmatch(n) for c in calls)]
    return found if found or _has_constant(names) else names[:1]
