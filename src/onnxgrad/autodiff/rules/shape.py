"""Operators that move elements without changing them. Each gradient moves them back."""

from onnx_ir import DataType

from onnxgrad.autodiff.rule import NoGradient, fused, rule
from onnxgrad.autodiff.rules._move import place_along, spread_along

rule("Reshape", data=lambda op, data, dreshaped: op.reshape_like(dreshaped, data))
rule("Squeeze", data=lambda op, data, dsqueezed: op.reshape_like(dsqueezed, data))
rule("Unsqueeze", data=lambda op, data, dexpanded: op.reshape_like(dexpanded, data))
rule("Flatten", input=lambda op, input, doutput: op.reshape_like(doutput, input))
rule("Expand", broadcast=True, input=lambda op, doutput: doutput)
rule("Trilu", input=lambda op, k, doutput, *, upper: op.Trilu(doutput, k, upper=upper))
rule("ReverseSequence", input=lambda op, sequence_lens, dY, *, attrs:
     op.ReverseSequence(dY, sequence_lens, **attrs))  # fmt: skip


@rule("Transpose", wrt="data")
def transpose(op, dtransposed, *, perm):
    """By the inverse permutation; the default one, which reverses the axes, is its own inverse."""
    if perm is None:
        return op.Transpose(dtransposed)
    return op.Transpose(dtransposed, perm=[list(perm).index(i) for i in range(len(perm))])


@rule("Concat", wrt="inputs")
def concat(op, inputs, dconcat_result, *, axis):
    """Cut the cotangent where the inputs met."""
    if len(inputs) == 1:
        return [dconcat_result]
    sizes = op.Concat(*[op.dim(x, axis) for x in inputs], axis=0)
    return list(op.Split(dconcat_result, sizes, axis=axis, outputs=len(inputs)))


@rule("Split", wrt="input")
def split(op, outputs, doutputs, *, axis):
    """Join the cotangents of the parts; a part that nobody uses contributes zeros."""
    parts = [
        op.full_like(y, 0) if dy is None else dy for y, dy in zip(outputs, doutputs, strict=True)
    ]
    return op.Concat(*parts, axis=axis)


@rule("Slice", wrt="data")
def slice_(op, data, starts, ends, axes, steps, output, doutput):
    """Put the cut back into zeros: by Pad for steps of 1, else by scattering along each axis."""
    if axes is None:
        axes = op.range(op.Shape(starts))
    if steps is None or set(op.ints(steps) or [0]) == {1}:
        return _pad_back(op, data, starts, output, doutput, axes)
    if op.ints(axes) is None:
        raise NoGradient(
            "slices with steps along axes that only the run knows", "make the axes constant"
        )
    for i, axis in reversed(list(enumerate(a % op.rank(data) for a in op.ints(axes)))):
        one = [op.Slice(v, [i], [i + 1], [0]) for v in (starts, ends, steps)]
        size = op.dim(data, axis)
        position = op.Slice(op.range(size), one[0], one[1], [0], one[2])
        doutput = place_along(op, doutput, position, size, axis)
    return doutput


fused("Slice", data=lambda op, data, starts, ends, axes, steps, doutput:
      op.SliceGrad(doutput, op.shape(data), starts, ends, axes, steps))  # fmt: skip


def _pad_back(op, data, starts, output, doutput, axes):
    """Zeros before: the start, counted from the front and kept inside. Zeros after: the rest."""
    axes, starts = (op.Cast(v, to=DataType.INT64) for v in (axes, starts))
    whole = op.Shape(data)
    size = op.Gather(whole, axes)
    begin = op.Where(op.Less(starts, 0), op.Add(starts, size), starts)
    begin = op.Max(op.Min(begin, size), 0)
    none = op.full(op.Shape(whole), 0, DataType.INT64)
    before = op.ScatterElements(none, axes, begin)
    after = op.Sub(op.Sub(whole, op.Shape(output)), before)
    return op.Pad(doutput, op.Concat(before, after, axis=0))


@rule("Tile", wrt="input")
def tile(op, input, repeats, doutput):
    """View the output as [r0, d0, r1, d1, …] and sum over every r."""
    rank = op.rank(input)
    pairs = [op.Unsqueeze(v, [1]) for v in (repeats, op.shape(input))]
    shape = op.Reshape(op.Concat(*pairs, axis=1), [-1])
    whole = op.Reshape(doutput, shape, allowzero=1)
    return op.ReduceSum(whole, list(range(0, 2 * rank, 2)), keepdims=0)


@rule("Pad", wrt="data constant_value")
def pad(op, data, pads, axes, doutput, *, mode, need):
    """Constant mode: padding by the negated amounts crops. Other modes: add where copies came from.

    What the crop leaves out came from constant_value.
    """
    if mode == "constant":
        ddata = op.Pad(doutput, op.Neg(pads), None, axes)
        dvalue = None
        if "constant_value" in need:
            total, kept = (op.ReduceSum(t, keepdims=0) for t in (doutput, ddata))
            dvalue = op.Sub(total, kept)
        return ddata, dvalue
    rank = op.rank(data)
    known = op.ints(axes) if axes is not None else list(range(rank))
    amounts = op.ints(pads)
    for i, axis in reversed(list(enumerate(a % rank for a in known))):
        if amounts is not None and amounts[i] == amounts[i + len(known)] == 0:
            continue
        both = op.Gather(pads, [i, i + len(known)], axis=0)
        size = op.dim(data, axis)
        source = op.Pad(op.range(size), both, mode=mode)
        doutput = spread_along(op, doutput, source, size, axis)
    return doutput, None


rule("SpaceToDepth", input=lambda op, doutput, *, blocksize:
     op.DepthToSpace(doutput, blocksize=blocksize))  # fmt: skip


@rule("DepthToSpace", wrt="input")
def depth_to_space(op, input, doutput, *, blocksize, mode):
    """DCR is undone by SpaceToDepth. CRD: [N,C,H,b,W,b] -> [N,C,b,b,H,W]."""
    if mode == "DCR":
        return op.SpaceToDepth(doutput, blocksize=blocksize)
    n, _, h, w = (op.dim(input, axis) for axis in range(4))
    six = op.Concat(n, [-1], h, [blocksize], w, [blocksize], axis=0)
    moved = op.Transpose(op.Reshape(doutput, six), perm=[0, 1, 3, 5, 2, 4])
    return op.reshape_like(moved, input)
