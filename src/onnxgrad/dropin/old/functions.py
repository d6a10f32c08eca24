"""What the operators around a training graph mean, as ONNX functions that travel in the files.

The drop-in runs its own kernels instead, in place. With the functions the files are also ordinary ONNX models, which
sessions load and .ort files are made from. Nothing is changed in place then: new weights are other outputs of a node.
"""

from __future__ import annotations

import onnx

from onnxgrad.contracts import DOMAIN, OPSET
from onnxgrad.dropin.old.fallbacks import formulas

FIRST_WITH_FUNCTIONS = 8  # of the versions of ONNX's file format

_ACCUMULATOR = """
InPlaceAccumulatorV2 (accumulation_buffer, value, overwrite_flag) => (updated_flag, accumulation_buffer_out)
{
    sum = Add (accumulation_buffer, value)
    accumulation_buffer_out = Where (overwrite_flag, value, sum)
    count = Size (accumulation_buffer_out)
    updated = Equal (count, count)
    one = Constant <value_ints = [1]> ()
    updated_flag = Reshape (updated, one)
}
"""

_CLIP = """
InplaceClipGradNorm <max_norm, norm_type> (gradients) => (clipped_gradients)
{
    limit = Constant <value_float: float = @max_norm> ()
    zero = Constant <value_float = 0.0> ()
    one = Constant <value_float = 1.0> ()
    tiny = Constant <value_float = 1e-6> ()
    go = Constant <value = bool {1}> ()
    count = SequenceLength (gradients)
    square = Loop (count, go, zero) <body = squares (int64 i, bool on, float before) => (bool next, float after)
    {
        next = Identity (on)
        g = SequenceAt (gradients, i)
        own = ReduceSumSquare <keepdims = 0> (g)
        after = Add (before, own)
    }>
    norm = Sqrt (square)
    size = Add (norm, tiny)
    ratio = Div (limit, size)
    scale = Min (ratio, one)
    none = SequenceEmpty ()
    clipped_gradients = Loop (count, go, none)
        <body = clip (int64 i, bool on, seq(float[]) before) => (bool next, seq(float[]) after)
    {
        next = Identity (on)
        g = SequenceAt (gradients, i)
        small = Mul (g, scale)
        after = SequenceInsert (before, small)
    }>
}
"""

_SGD = """
SGDOptimizerV2 (lr, weights, gradients) => (update_completed, updated_weights)
{
    go = Constant <value = bool {1}> ()
    update_completed = Constant <value = bool[1] {1}> ()
    count = SequenceLength (weights)
    none = SequenceEmpty ()
    updated_weights = Loop (count, go, none)
        <body = sgd (int64 i, bool on, seq(float[]) before) => (bool next, seq(float[]) after)
    {
        next = Identity (on)
        w = SequenceAt (weights, i)
        g = SequenceAt (gradients, i)
        step = Mul (lr, g)
        new = Sub (w, step)
        after = SequenceInsert (before, new)
    }>
}
"""

# adam_mode 1: w ← (w - lr·√c2/c1·m/(√v + ε))·(1 - lr·decay)
_ADAMW = """
AdamWOptimizer <alpha, beta, epsilon, weight_decay, correct_bias, adam_mode>
    (lr, step, weights, gradients, momentums_1, momentums_2)
    => (updated_flag, updated_weights, updated_momentums_1, updated_momentums_2)
{
    beta1 = Constant <value_float: float = @alpha> ()
    beta2 = Constant <value_float: float = @beta> ()
    tiny = Constant <value_float: float = @epsilon> ()
    decay = Constant <value_float: float = @weight_decay> ()
    corrects = Constant <value_int: int = @correct_bias> ()
    corrected = Cast <to = 9> (corrects)
    one = Constant <value_float = 1.0> ()
    rest1 = Sub (one, beta1)
    rest2 = Sub (one, beta2)
    t = Cast <to = 1> (step)
    power1 = Pow (beta1, t)
    power2 = Pow (beta2, t)
    c1 = Sub (one, power1)
    c2 = Sub (one, power2)
    root = Sqrt (c2)
    bias = Div (root, c1)
    factor = Where (corrected, bias, one)
    rate = Mul (lr, factor)
    loss_of_weight = Mul (lr, decay)
    kept = Sub (one, loss_of_weight)
    go = Constant <value = bool {1}> ()
    updated_flag = Constant <value = bool[1] {1}> ()
    count = SequenceLength (weights)
    none = SequenceEmpty ()
    updated_weights, updated_momentums_1, updated_momentums_2 = Loop (count, go, none, none, none)
        <body = adamw (int64 i, bool on, seq(float[]) w_in, seq(float[]) m_in, seq(float[]) v_in)
            => (bool next, seq(float[]) w_out, seq(float[]) m_out, seq(float[]) v_out)
    {
        next = Identity (on)
        w = SequenceAt (weights, i)
        g = SequenceAt (gradients, i)
        m = SequenceAt (momentums_1, i)
        v = SequenceAt (momentums_2, i)
        m_kept = Mul (beta1, m)
        m_new = Mul (rest1, g)
        m_next = Add (m_kept, m_new)
        g_square = Mul (g, g)
        v_kept = Mul (beta2, v)
        v_new = Mul (rest2, g_square)
        v_next = Add (v_kept, v_new)
        v_root = Sqrt (v_next)
        size = Add (v_root, tiny)
        direction = Div (m_next, size)
        move = Mul (rate, direction)
        moved = Sub (w, move)
        w_next = Mul (moved, kept)
        w_out = SequenceInsert (w_in, w_next)
        m_out = SequenceInsert (m_in, m_next)
        v_out = SequenceInsert (v_in, v_next)
    }>
}
"""

TEXTS = {
    "InPlaceAccumulatorV2": _ACCUMULATOR,
    "InplaceClipGradNorm": _CLIP,
    "SGDOptimizerV2": _SGD,
    "AdamWOptimizer": _ADAMW,
}


def add_functions(model: onnx.ModelProto) -> None:
    """Give a model the functions of the operators in it that a session may not know, in place."""
    present = {(f.domain, f.name) for f in model.functions}
    entry = next((o for o in model.opset_import if o.domain in ("", "ai.onnx")), None)
    texts = {**TEXTS, **formulas(model)}
    nodes = {n.op_type: n for n in model.graph.node if n.domain == DOMAIN and n.op_type in texts}
    for kind, node in nodes.items():
        if entry is not None and (DOMAIN, kind) not in present:
            model.functions.append(_function(texts[kind], entry.version, node))
            model.ir_version = max(model.ir_version, FIRST_WITH_FUNCTIONS)


def _function(text: str, opset: int, node: onnx.NodeProto) -> onnx.FunctionProto:
    """Return the function of an operator with as many outputs as its nodes have."""
    header = f'<domain: "{DOMAIN}", opset_import: ["" : {opset}, "{DOMAIN}" : {OPSET}]>'
    result = onnx.parser.parse_function(header + text)
    del result.output[len(node.output) :]
    return result
