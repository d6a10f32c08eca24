"""The lines of LSTM and GRU, forward and gradient: shapes, states from a forward pass, and PyTorch's module.

`lines(bench, samples)` makes them with the constructor and the samples of lines.py, which holds the whole table.
"""

from __future__ import annotations

# PyTorch's gate order is i f g o for LSTM (ONNX: i o f c) and r z n for GRU (ONNX: z r h).
_MODULE = """
torch.set_grad_enabled(True)
def reorder(w):
    parts = w.chunk({gates}, 0)
    return torch.cat([parts[i] for i in {order}])
module = torch.nn.{name}(X.shape[2], R.shape[2])
with torch.no_grad():
    module.weight_ih_l0.copy_(reorder(W[0]))
    module.weight_hh_l0.copy_(reorder(R[0]))
    module.bias_ih_l0.zero_()
    module.bias_hh_l0.zero_()
x = X.clone().requires_grad_()
"""
_BACKWARD = """
y, _ = module(x)
wanted = [x, module.weight_ih_l0, module.weight_hh_l0, module.bias_ih_l0, module.bias_hh_l0]
cotangent = grad_HAll[:, 0].contiguous()
"""
_SETUP = {
    "LSTM": _MODULE.format(gates=4, order=[0, 2, 3, 1], name="LSTM"),
    "GRU": _MODULE.format(gates=3, order=[1, 0, 2], name="GRU"),
}
# Only HAll and dX are compared: the others are in PyTorch's gate order.
_TORCH_FORWARD = "module(x)[0]"
_TORCH_GRADIENT = "torch.autograd.grad(y, wanted, cotangent, retain_graph=True)[:1]"

_GATES = {"LSTM": 4, "GRU": 3}
# PyTorch's GRU multiplies by r after the product with R.
_ATTRIBUTES = {"LSTM": {}, "GRU": {"linear_before_reset": 1}}
_KEPT = {"LSTM": ("HAll", "CAll", "IOFC"), "GRU": ("HAll", "ZRH")}

# S, N, I, H: the targets of LSTMGrad and GRUGrad against PyTorch on two threads
_TARGETS = {
    (32, 32, 128, 128): (1.2, 2),
    (64, 16, 256, 256): (1.0, 1.8),
    (16, 1, 64, 64): (8, 20),
    (100, 64, 512, 512): (1.05, 1.1),
}


def _states(op: str):
    def states(inputs: dict) -> dict:
        from onnxgrad import kernels

        forward = getattr(kernels, f"{op.lower()}_training")
        result = forward(inputs["X"], inputs["W"], inputs["R"], **_ATTRIBUTES[op])
        return {name: getattr(result, name) for name in _KEPT[op]}

    return states


def _arguments(s, op: str, shape) -> dict:
    """Weights, an input sequence and attributes; the old kernels would take minutes on the large shape."""
    S, N, I, H = shape  # noqa: E741
    gates, spread = _GATES[op] * H, 1 / H**0.5
    return dict(
        X=s.normal(S, N, I),
        W=s.normal(1, gates, I, spread=spread),
        R=s.normal(1, gates, H, spread=spread),
        hidden_size=H,
        share="fma",
        without=("onnxruntime-training",) if S * N * H * H > 1e9 else (),
        **_ATTRIBUTES[op],
    )


def _flops(op: str, shape) -> float:
    """Of the two products of the forward pass; the gradient has four."""
    S, N, I, H = shape  # noqa: E741
    return 2.0 * S * N * _GATES[op] * H * (I + H)


def _title(shape) -> str:
    return "S{} N{} I{} H{}".format(*shape)


def _gradient(bench, s, op: str, shape, target):
    """All gradients of one direction; the states come from our own forward operator."""
    S, N, _, H = shape
    return bench(
        f"{op}Grad", _title(shape), _TORCH_GRADIENT, torch_setup=_SETUP[op] + _BACKWARD, derive=_states(op),
        grad_HAll=s.normal(S, 1, N, H), outputs=("dX", "dW", "dR", "dB"), flops=2 * _flops(op, shape),
        target=target, **_arguments(s, op, shape),
    )  # fmt: skip


def _forward(bench, s, op: str, shape):
    """With everything that the gradient needs; the stock operator gives the states only."""
    return bench(
        f"{op}Training", _title(shape), _TORCH_FORWARD, torch_setup=_SETUP[op], flops=_flops(op, shape),
        target=1.0, stock=op, **_arguments(s, op, shape),
    )  # fmt: skip


def lines(bench, samples) -> list:
    rows = []
    for i, op in enumerate(_GATES):
        rows += [_gradient(bench, samples, op, s, t[i]) for s, t in _TARGETS.items()]
        rows += [_forward(bench, samples, op, shape) for shape in _TARGETS]
    return rows
