"""Operator by operator: the gradient is PyTorch's, in the same process."""

import numpy as np
import pytest
from autodiff.harness import distinct, ints, normal, positive
from live import rows
from live.rows import row

torch = pytest.importorskip("torch")
F = torch.nn.functional if torch else None
pytestmark = pytest.mark.live

_X = distinct(2, 4, 6, 5)
_GRID = normal(2, 3, 3, 2, scale=0.6)


def _unary(op, function, name="X", x=_X, **attributes):
    return row(op, function, **{name: x}, **attributes)


UNARY = [
    _unary(op, function)
    for op, function in [
        ("Relu", F.relu), ("Sigmoid", torch.sigmoid), ("Softplus", F.softplus), ("Selu", F.selu),
        ("Mish", F.mish), ("HardSwish", F.hardswish), ("Abs", torch.abs), ("Neg", torch.neg),
        ("Elu", F.elu), ("LeakyRelu", F.leaky_relu),
        ("Reciprocal", torch.reciprocal),
    ]
] + [
    _unary(op, function, "input")
    for op, function in [
        ("Tanh", torch.tanh), ("Exp", torch.exp), ("Erf", torch.erf), ("Sin", torch.sin),
        ("Cos", torch.cos), ("Tan", torch.tan), ("Atan", torch.atan), ("Sinh", torch.sinh),
        ("Cosh", torch.cosh), ("Asinh", torch.asinh), ("Softsign", F.softsign),
    ]
] + [
    _unary("Sqrt", torch.sqrt, x=positive(3, 4)),
    _unary("Log", torch.log, "input", x=positive(3, 4)),
    _unary("Acosh", torch.acosh, "input", x=positive(3, 4, low=1.1)),
    _unary("Asin", torch.asin, "input", x=positive(3, 4, high=0.9) - 0.5),
    _unary("Acos", torch.acos, "input", x=positive(3, 4, high=0.9) - 0.5),
    _unary("Atanh", torch.atanh, "input", x=positive(3, 4, high=0.9) - 0.5),
    _unary("Celu", F.celu, _dtype=np.float32),  # ONNX has it for float only
    _unary("Gelu", F.gelu),
    _unary("Gelu", lambda x: F.gelu(x, approximate="tanh"), approximate="tanh"),
    _unary("Softmax", lambda x: F.softmax(x, 1), "input", axis=1),
    _unary("LogSoftmax", lambda x: F.log_softmax(x, -1), "input"),
]  # fmt: skip

TWO = [
    row("Add", torch.add, A=normal(2, 3), B=normal(3)),
    row("Sub", torch.sub, A=normal(2, 3), B=normal(3)),
    row("Mul", torch.mul, A=normal(2, 1, 3), B=normal(4, 1)),
    row("Div", torch.div, A=normal(2, 3), B=positive(3)),
    row("Pow", torch.pow, X=positive(2, 3), Y=normal(3)),
    row("Max", torch.maximum, data_0=[normal(2, 3), normal(3)]),
    row("Min", torch.minimum, data_0=[normal(2, 3), normal(3)]),
    row("MatMul", torch.matmul, A=normal(2, 3, 4), B=normal(4, 5)),
    row("Gemm", lambda a, b, c: 0.5 * a.T @ b + 2 * c, A=normal(4, 3), B=normal(4, 5),
        C=normal(5), alpha=0.5, beta=2.0, transA=1),
    row("PRelu", lambda x, s: torch.where(x < 0, x * s, x), X=normal(2, 3), slope=normal(3)),
    row("Where", lambda x, y: torch.where(torch.tensor([[True], [False]]), x, y),
        condition=np.array([[True], [False]]), X=normal(2, 3), Y=normal(3)),
    row("Einsum", lambda a, b: torch.einsum("bij,bjk->bik", a, b),
        Inputs=[normal(2, 3, 4), normal(2, 4, 5)], equation="bij,bjk->bik"),
]  # fmt: skip

REDUCE = [
    row(op, function, data=positive(3, 4, 5), axes=ints(0, 2), keepdims=0)
    for op, function in [
        ("ReduceSum", lambda x: x.sum((0, 2))), ("ReduceMean", lambda x: x.mean((0, 2))),
        ("ReduceMax", lambda x: x.amax((0, 2))), ("ReduceMin", lambda x: x.amin((0, 2))),
        ("ReduceL1", lambda x: x.abs().sum((0, 2))), ("ReduceL2", lambda x: x.norm(dim=(0, 2))),
        ("ReduceProd", lambda x: x.prod(2).prod(0)),
        ("ReduceLogSumExp", lambda x: torch.logsumexp(x, (0, 2))),
    ]
] + [
    row("CumSum", lambda x: x.cumsum(1), x=normal(3, 4), axis=np.array(1)),
    row("CumProd", lambda x: x.cumprod(1), _opset=26, x=positive(3, 4), axis=np.array(1)),
    row("TopK", lambda x: x.topk(2, 1)[0], X=distinct(3, 5), K=ints(2), outputs=2),
]  # fmt: skip

LAYERS = [
    row("Conv", lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 2), (1, 2), 2), X=_X,
        W=normal(6, 2, 3, 2), B=normal(6), strides=[2, 1], pads=[1, 2, 1, 2], dilations=[1, 2],
        group=2, _dtype=np.float32),
    row("ConvTranspose", lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1), X=_X,
        W=normal(4, 3, 3, 3), B=normal(3), strides=[2, 2], pads=[1, 1, 1, 1],
        output_padding=[1, 1], _dtype=np.float32),
    row("MaxPool", lambda x: F.max_pool2d(x, 3, 2, 1), X=_X, kernel_shape=[3, 3], strides=[2, 2],
        pads=[1, 1, 1, 1]),
    row("AveragePool", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), X=_X,
        kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    row("LpPool", lambda x: F.lp_pool2d(x.abs(), 3, 2), X=_X, kernel_shape=[2, 2], strides=[2, 2],
        p=3, _dtype=np.float32),
    row("LRN", lambda x: F.local_response_norm(x, 3, 0.5, 0.6, 1.2), X=_X, size=3, alpha=0.5,
        beta=0.6, bias=1.2, _dtype=np.float32),
    row("LayerNormalization", lambda x, s, b: F.layer_norm(x, (5,), s, b), X=_X, Scale=normal(5),
        B=normal(5)),
    row("GroupNormalization", lambda x, s, b: F.group_norm(x, 2, s, b), X=_X, scale=normal(4),
        bias=normal(4), num_groups=2),
    row("InstanceNormalization", lambda x, s, b: F.instance_norm(x, weight=s, bias=b), input=_X,
        scale=normal(4), B=normal(4), _dtype=np.float32),
    row("RMSNormalization", lambda x, s: F.rms_norm(x, (5,), s, 1e-5), _opset=23, X=_X,
        scale=normal(5), _dtype=np.float32),
    row("SoftmaxCrossEntropyLoss", lambda x: F.cross_entropy(x, torch.tensor([1, 0, 2])),
        scores=normal(3, 4), labels=ints(1, 0, 2)),
]  # fmt: skip


def _interpolate(mode, corners):
    align = {} if mode == "nearest" else {"align_corners": corners}
    return lambda x: F.interpolate(x, size=(9, 3), mode=mode, **align)


SAMPLING = [
    row("Resize", _interpolate(torch_mode, corners), X=_X, sizes=ints(2, 4, 9, 3), mode=mode,
        coordinate_transformation_mode=where, nearest_mode="floor", wrt=("X",), _dtype=np.float32)
    for mode, torch_mode, corners, where in [
        ("nearest", "nearest", None, "asymmetric"),
        ("linear", "bilinear", False, "pytorch_half_pixel"),
        ("linear", "bilinear", True, "align_corners"),
        ("cubic", "bicubic", False, "pytorch_half_pixel"),
        ("cubic", "bicubic", True, "align_corners"),
    ]
] + [
    row("GridSample", lambda x, g, m=mode, p=padding, c=corners: F.grid_sample(
            x, g, {"linear": "bilinear", "cubic": "bicubic"}.get(m, m), p, bool(c)),
        X=normal(2, 3, 4, 5), grid=_GRID, mode=mode, padding_mode=padding, align_corners=corners)
    for mode in ("linear", "nearest", "cubic")
    for padding in ("zeros", "border", "reflection")
    for corners in (0, 1)
] + [
    row("AffineGrid", lambda t: F.affine_grid(t, [2, 3, 4, 5], align_corners=False),
        theta=normal(2, 2, 3), size=ints(2, 3, 4, 5)),
    row("Col2Im", lambda x: F.fold(x, (4, 5), (2, 2)), input=normal(2, 12, 12),
        image_shape=ints(4, 5), block_shape=ints(2, 2), _dtype=np.float32),
    row("Det", torch.linalg.det, X=normal(2, 4, 4), _dtype=np.float32),
    row("DepthToSpace", lambda x: F.pixel_shuffle(x, 2), input=_X[:, :4], blocksize=2, mode="CRD"),
    row("Pad", lambda x: F.pad(x, (1, 2, 1, 0), "reflect"), data=_X,
        pads=ints(0, 0, 1, 1, 0, 0, 0, 2), mode="reflect"),
]  # fmt: skip

CASES = UNARY + TWO + REDUCE + LAYERS + SAMPLING


@pytest.mark.parametrize(
    ("case", "function"), CASES, ids=[f"{i} {c.op}" for i, (c, _) in enumerate(CASES)]
)
def test_against_torch(case, function):
    rows.compare(case, function)
