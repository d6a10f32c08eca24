"""The operators without a property test of their own, on inputs that nobody thought of: hypothesis draws shapes,
attributes and kinds of numbers, the references judge by the contract's own measure and bound.
"""

from __future__ import annotations

import functools
import importlib
import math

import numpy as np
import pytest
from cases import resize_grad, slice_grad
from cases.case import Case
from cases.judging import hold
from cases.samples import exactly, simplex
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from onnxgrad.contracts import contracts

EXAMPLES = max(settings().max_examples // 2, 1)  # of each of 34 operators
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

some, flags, bits = st.sampled_from, st.booleans(), st.integers(0, 1)
index_types = some((np.int64, np.int32))
# Nothing, one, next to the widths of registers, primes.
sizes = some((0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97, 257))
long_sizes = some((1_009, 4_095, 4_097, 10_007, 16_385, 39_989))


@st.composite
def shapes(draw, lowest=0, highest=5, largest=40_000, first=()):
    """At most `largest` elements; one axis in six shapes is long. `first` are the first sizes of the shape."""
    fixed = len(first)
    shape = [*first, *draw(st.lists(sizes, min_size=lowest - fixed, max_size=highest - fixed))]
    if len(shape) > fixed and draw(st.integers(0, 5)) == 5:
        shape[draw(st.integers(fixed, len(shape) - 1))] = draw(long_sizes)
    room = largest // max(math.prod(first), 1)
    for a in draw(st.permutations(range(fixed, len(shape)))):
        shape[a] = min(shape[a], room)
        room //= max(shape[a], 1)
    return tuple(shape)


def axes_of(shape):
    return st.integers(-len(shape), len(shape) - 1)


def per_axis(draw, rank, low, high):
    return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))


# ---- numbers


def _cancelling(rng, shape):
    """For each number nearly its opposite, somewhere along one axis."""
    a = rng.normal(size=shape)
    if not a.ndim:
        return a
    axis = rng.integers(a.ndim)
    pairs = np.moveaxis(a, axis, 0)
    half = len(pairs) // 2
    pairs[half : 2 * half] = -pairs[:half] * (1 + 1e-3 * pairs[half : 2 * half])
    return rng.permuted(a, axis=axis)


KINDS = {
    "plain": lambda rng, shape: rng.normal(size=shape),
    "around 1": lambda rng, shape: rng.normal(1, 1, shape),
    "shifted": lambda rng, shape: rng.normal(-10, 1, shape),
    "far": lambda rng, shape: rng.normal(100, 1, shape),
    "large and small": lambda rng, shape: rng.normal(size=shape) * 10 ** rng.uniform(-3, 3, shape),
    "cancelling": _cancelling,
    "ties": lambda rng, shape: rng.integers(-2, 3, shape).astype(float),
    "mostly 0": lambda rng, shape: rng.normal(size=shape) * (rng.random(shape) < 0.05),
    "equal": lambda rng, shape: np.ones(shape),
}
SCALES = ("plain", "around 1", "large and small", "equal")


@st.composite
def numbers(draw, name, kinds=tuple(KINDS), powers=(-3, 3)):
    """A function from a shape to its sample. Two inputs never get the same numbers: their names differ."""
    kind, power, seed = draw(some(kinds)), draw(st.integers(*powers)), draw(st.integers(0, 999))
    return lambda *shape: functools.partial(_numbers, shape, kind, power, (seed, *name.encode()))


def _numbers(shape, kind, power, seed, rng):
    return 10.0**power * KINDS[kind](np.random.default_rng(seed), shape)


def builder(op):
    """What makes the rows of the operator's table in tests/cases."""
    return importlib.import_module(f"cases.{contracts()[op].python_name}")._case


def build(draw, make, *arguments, redraw=(), **more):
    """The case that tests/cases makes, with drawn numbers in the inputs `redraw`; the rest hangs on its title."""
    case = make(f"drawn {draw(st.integers(0, 999))}", *arguments, **more)
    shape = {n: np.shape(case.samples[n](np.random.default_rng(0))) for n in redraw}
    drawn = {n: draw(numbers(n))(*shape[n]) for n in redraw}
    return Case(case.title, **{**case.samples, **drawn}, **case.attributes)


# ---- one strategy per family; `op` names the operator


@st.composite
def pointwise(draw, op, second="X", squash=lambda x: x, alphas=None, bounds=False, bias=False):
    shape = draw(shapes(lowest=int(bias)))
    x = draw(numbers(second))(*shape)
    more = {"alpha": draw(some(alphas))} if alphas else {}
    if bounds:  # whole numbers, so that ties in X lie on them
        whole = [exactly(np.float64(n)) for n in range(-2, 3)]
        more = {n: draw(some(whole)) for n in ("min", "max") if draw(flags)}
    if bias:
        more = {"B": draw(numbers("B"))(shape[-1])}
    dy = draw(numbers("dY"))(*shape)
    return Case("drawn", dY=dy, **{second: lambda rng: squash(x(rng))}, **more)


@st.composite
def bias_gelu(draw, op):
    return build(draw, builder(op), *draw(shapes(lowest=1)), redraw=("dY", "X", "B"))


@st.composite
def dropout(draw, op):
    ratio = draw(some((None, 0.0, 0.1, 0.3, 0.5, 0.9, 0.999)))
    training, kept = draw(some((None, True, False))), draw(some((0.0, 0.1, 0.7, 1.1)))
    return build(draw, builder(op), draw(shapes()), ratio, training, kept, redraw=("dy",))


@st.composite
def probabilities(draw, count, logarithm):
    """A function from a shape to what the forward operator gave: nearly even or nearly one-hot rows of `count`."""
    spread, peak = draw(some((1e-3, 1.0, 5.0, 30.0))), draw(some((None, None, 0.999, 1 - 1e-6)))
    peak = peak if count > 1 else None

    def y(*shape, axis=-1):
        sample = simplex(*shape, axis=axis, spread=spread, peak=peak)
        return lambda rng: finish(sample(rng))

    def finish(y):
        y[y < 1e-20] = 0  # a row of which only such numbers count is too small for float32
        with np.errstate(divide="ignore"):
            return np.log(y) if logarithm else y

    return y


@st.composite
def softmax(draw, op, logarithm=False, flattened=False):
    shape = draw(shapes(lowest=1))
    axis = draw(axes_of(shape))
    at = axis % len(shape)
    rows = (math.prod(shape[:at]), math.prod(shape[at:]))
    y = draw(probabilities(rows[1] if flattened else shape[at], logarithm))
    sample = (lambda rng: y(*rows)(rng).reshape(shape)) if flattened else y(*shape, axis=axis)
    title = f"drawn {draw(st.integers(0, 999))}"
    return Case(title, dY=draw(numbers("dY"))(*shape), Y=sample, axis=axis)


@st.composite
def cross_entropy(draw, op):
    """The mean of no labels is 0/0; the reference makes a matrix of classes × classes."""
    shape = list(draw(shapes(2, 4)))
    shape[1] = min(max(shape[1], 2), 2_003)
    more = dict(weights=draw(flags), dtype=draw(index_types))
    more["reduction"] = draw(some(("mean", "sum", "none")))
    if draw(flags):
        ignore_all = draw(st.integers(0, 5)) == 5
        more.update(ignore=draw(some((0, 1, -1, -100, 255))), ignore_all=ignore_all)
    assume(math.prod(shape) or more["reduction"] != "mean")
    drawn = "scores" if op == "SoftmaxCrossEntropyLossInternal" else "dY"
    case = build(draw, builder(op), tuple(shape), more, redraw=(drawn,))
    if drawn == "dY":
        case.samples["log_prob"] = draw(probabilities(shape[1], True))(*shape, axis=1)
    return case


@st.composite
def layer_norm(draw, op):
    """One number in a row gives an X_grad of 0: what a kernel makes of it is its rounding."""
    shape = draw(shapes(lowest=1))
    axis, power = draw(axes_of(shape)), draw(st.integers(-3, 3))
    assume(math.prod(shape[axis:]) != 1)
    more = dict(keepdims=draw(flags), spread=10.0**power, dy=draw(numbers("dY")))
    more["x"] = draw(numbers("X", powers=(power, power)))
    more["scale"] = draw(numbers("scale", SCALES, (-2, 1)))
    return build(draw, builder(op), shape, axis, more)


@st.composite
def channel_norm(draw, op, images=True):
    """[images, channels, …], normalised over the images or within each of them.

    Of two numbers that are normalised together only epsilon's share is left in dX.
    """
    n, c, *rest = draw(shapes(2 if images else 3, 5))
    more = dict(x=draw(numbers("X")), scale=draw(numbers("scale", SCALES, (-2, 1))))
    if op not in ("BatchNormInternal", "GroupNormalizationTraining"):
        more["dy"] = draw(numbers("dY"))
    if op != "BatchNormalizationGrad":
        more["attributes"] = dict(epsilon=draw(some((1e-5, 1e-3, 1.0))))
    c = c if images else max(c, 1)
    together = (n if images else 1) * math.prod(rest)
    if op not in ("GroupNormalizationGrad", "GroupNormalizationTraining"):
        assume(together not in (1, 2))
        return build(draw, builder(op), (n, c, *rest), more)
    groups, c = draw(some((1, 2, 3, 8))), min(c, 40) + 1
    assume(c * math.prod(rest) not in (1, 2))
    if draw(flags):
        more["scales"] = groups
    return build(draw, builder(op), (n, groups * c, *rest), more, groups)


@st.composite
def pool(draw, op):
    """A window is never larger than the image, nor padding than the window."""
    shape = list(draw(shapes(3, 5, largest=1_500)))
    rank = len(shape) - 2
    kernel, dilations = per_axis(draw, rank, 1, 4), per_axis(draw, rank, 1, 2)
    for a in range(rank):
        shape[a + 2] = max(shape[a + 2], (kernel[a] - 1) * dilations[a] + 1)
    assume(math.prod(shape) < 4_000)
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    more = dict(dilations=dilations)
    if op == "MaxPoolGrad":
        more.update(ceil=draw(flags), levels=draw(some((None, 1, 3))), dtype=draw(index_types))
    else:
        mode = draw(some(("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")))
        more.update(ceil_mode=draw(bits), count_include_pad=draw(bits), auto_pad=mode)
        pads = pads if mode == "NOTSET" else None
    arguments = (tuple(shape), kernel, per_axis(draw, rank, 1, 3), pads)
    return build(draw, builder(op), *arguments, redraw=("dY",), **more)


@st.composite
def forward_pool(draw, op):
    shape = (draw(st.integers(0, 2)), draw(st.integers(0, 3)), *per_axis(draw, 2, 4, 20))
    kernel = per_axis(draw, 2, 1, 4)
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    more = dict(levels=draw(some((None, 1, 3))), ceil_mode=draw(bits))
    return build(draw, builder(op), shape, kernel, per_axis(draw, 2, 1, 3), pads, **more)


@st.composite
def resize(draw, op):
    shape = tuple(min(d, 70) for d in draw(shapes(1, 4, largest=2_000)))
    scales = [draw(some((1.0, 1.0, 2.0, 3.0, 0.5, 0.3, 1.7, 0.77, 2.51))) for _ in shape]
    outs = [math.floor(np.float32(d) * np.float32(s)) for d, s in zip(shape, scales, strict=True)]
    assume(math.prod(outs) < 20_000)
    more = dict(mode=draw(some(("nearest", "linear", "cubic"))))
    more["coordinate_transformation_mode"] = draw(some(resize_grad.TRANSFORMS))
    if more["mode"] == "nearest":
        rounding = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        more["nearest_mode"] = draw(some(rounding))
    else:
        more.update(exclude_outside=draw(bits), antialias=draw(bits))
    if draw(flags):
        return build(draw, resize_grad._sized, shape, outs, redraw=("dY",), **more)
    return build(draw, resize_grad._scaled, shape, scales, redraw=("dY",), **more)


@st.composite
def conv_transpose(draw, op):
    rank, group, n = draw(some((1, 2, 2, 3))), draw(some((1, 1, 2, 3))), draw(st.integers(0, 3))
    c, m = (group * draw(st.integers(1, 3) | some((15, 16, 17, 33))) for _ in "cm")
    size, kernel = per_axis(draw, rank, 1, {1: 60, 2: 14, 3: 6}[rank]), per_axis(draw, rank, 1, 4)
    more = dict(strides=per_axis(draw, rank, 1, 3), dilations=per_axis(draw, rank, 1, 2))
    more["auto_pad"] = draw(some(("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")))
    if more["auto_pad"] == "NOTSET":
        more["pads"] = per_axis(draw, rank, 0, 2) + per_axis(draw, rank, 0, 2)
        more["output_padding"] = [draw(st.integers(0, s - 1)) for s in more["strides"]]
        assume(min(i + k for i, k in zip(size, kernel, strict=True)) > 5)  # more than the padding
    assume(n * c * m * math.prod(kernel) * math.prod(size) < 1_000_000)
    arguments = (n, c, m, size, kernel)
    return build(draw, builder(op), *arguments, redraw=("dY", "X", "W"), group=group, **more)


@st.composite
def gather(draw, op):
    shape = draw(shapes(1, 4, largest=5_000))
    axis = draw(axes_of(shape))
    dim = shape[axis]
    count = draw(shapes(0, 2, largest=200)) if dim else (0,)
    more = dict(low=-dim * draw(bits), high=max(min(dim, draw(some((dim, 1, 2)))), 1))
    more["dtype"] = draw(index_types)
    return build(draw, builder(op), shape, count, axis, redraw=("dY",), **more)


@st.composite
def gather_elements(draw, op):
    shape = draw(shapes(1, 4))
    axis = draw(axes_of(shape))
    out = [draw(st.integers(max(d - 2, 0), d) | st.integers(0, d)) for d in shape]
    out[axis] = 1
    out[axis] = min(draw(sizes), 40_000 // max(math.prod(out), 1)) if shape[axis] else 0
    more = dict(low=-shape[axis] * draw(bits), dtype=draw(index_types))
    return build(draw, builder(op), shape, tuple(out), axis, redraw=("dY",), **more)


@st.composite
def gather_nd(draw, op):
    shape = draw(shapes(1, 5, largest=5_000))
    batch = draw(st.integers(0, len(shape) - 1))
    depth = draw(st.integers(1, len(shape) - batch))
    tuples = draw(shapes(batch, batch + 2, first=shape[:batch]))
    if not math.prod(shape[batch : batch + depth]):
        tuples = (*shape[:batch], 0)
    assume(math.prod(tuples) * math.prod(shape[batch + depth :]) < 100_000)
    more = dict(negative=draw(flags), dtype=draw(index_types))
    arguments = (shape, tuples, depth, batch)
    return build(draw, builder(op), *arguments, redraw=("update",), **more)


@st.composite
def slices(draw, op):
    shape, far = draw(shapes(1, 5)), slice_grad.FAR
    axes = draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
    starts, ends = (
        [draw(st.integers(-shape[a] - 2, shape[a] + 2) | some((far, -far))) for a in axes]
        for _ in "se"
    )
    steps = [draw(some((1, 1, 2, 3, 7, -1, -1, -2, -5, 2**30))) for _ in axes]
    axes = [a - len(shape) * draw(bits) for a in axes]
    arguments = (shape, starts, ends, axes, steps)
    return build(draw, builder(op), *arguments, redraw=("dY",), dtype=draw(index_types))


def family(strategy, names, **settings):
    return {name: functools.partial(strategy, name, **settings) for name in names.split()}


OPERATORS = {
    **family(pointwise, "ReluGrad GeluGrad FastGeluGrad HardSwishGrad"),
    **family(pointwise, "SigmoidGrad", second="Y", squash=lambda x: (1 + np.tanh(x / 2)) / 2),
    **family(pointwise, "TanhGrad", second="Y", squash=np.tanh),
    **family(pointwise, "LeakyReluGrad", second="Y", alphas=(0.01, 0.3, -0.5, 0.0, 1.7)),
    **family(pointwise, "QuickGeluGrad", alphas=(1.702, 1.0, 0.1, 0.0, -1.5, 20.0)),
    **family(pointwise, "ClipGrad", bounds=True),
    **family(pointwise, "BiasGeluGrad_dX BiasFastGeluGrad_dX", bias=True),
    **family(bias_gelu, "BiasGeluGrad"),
    **family(dropout, "DropoutGrad"),
    **family(softmax, "SoftmaxGrad_13"),
    **family(softmax, "SoftmaxGrad", flattened=True),
    **family(softmax, "LogSoftmaxGrad_13", logarithm=True),
    **family(softmax, "LogSoftmaxGrad", logarithm=True, flattened=True),
    **family(cross_entropy, "SoftmaxCrossEntropyLossGrad SoftmaxCrossEntropyLossInternal"),
    **family(cross_entropy, "SoftmaxCrossEntropyLossInternalGrad"),
    **family(layer_norm, "LayerNormalizationGrad SimplifiedLayerNormalizationGrad"),
    **family(layer_norm, "InvertibleLayerNormalizationGrad"),
    **family(channel_norm, "BatchNormInternal BatchNormalizationGrad"),
    **family(channel_norm, "GroupNormalizationGrad InstanceNormalizationGrad", images=False),
    **family(channel_norm, "GroupNormalizationTraining", images=False),
    **family(pool, "MaxPoolGrad AveragePoolGrad"),
    **family(forward_pool, "MaxPoolTraining"),
    **family(resize, "ResizeGrad"),
    **family(conv_transpose, "ConvTransposeGrad"),
    **family(gather, "GatherGrad"),
    **family(gather_elements, "GatherElementsGrad"),
    **family(gather_nd, "GatherNDGrad"),
    **family(slices, "SliceGrad"),
}


@pytest.mark.parametrize("op", OPERATORS)
@settings(max_examples=EXAMPLES, suppress_health_check=SLOW)
@given(data=st.data())
def test_property_matches_the_reference(op, data):
    case = data.draw(OPERATORS[op]()).of(contracts()[op])
    hold(case)
