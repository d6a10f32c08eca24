"""What the lines of LSTMGrad and GRUGrad need beside their shapes: states from a forward pass, and PyTorch's module."""

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
y, _ = module(x)
wanted = [x, module.weight_ih_l0, module.weight_hh_l0, module.bias_ih_l0, module.bias_hh_l0]
cotangent = grad_HAll[:, 0].contiguous()
"""
SETUP = {
    "LSTMGrad": _MODULE.format(gates=4, order=[0, 2, 3, 1], name="LSTM"),
    "GRUGrad": _MODULE.format(gates=3, order=[1, 0, 2], name="GRU"),
}
# Only dX is compared: the others are in PyTorch's gate order.
TORCH = "torch.autograd.grad(y, wanted, cotangent, retain_graph=True)[:1]"

# PyTorch's GRU multiplies by r after the product with R.
ATTRIBUTES = {"LSTMGrad": {}, "GRUGrad": {"linear_before_reset": 1}}


def _lstm_states(inputs: dict) -> dict:
    from onnxgrad import kernels

    result = kernels.lstm_training(inputs["X"], inputs["W"], inputs["R"])
    return {"HAll": result.HAll, "CAll": result.CAll, "IOFC": result.IOFC}


def _gru_states(inputs: dict) -> dict:
    from onnxgrad import kernels

    result = kernels.gru_training(inputs["X"], inputs["W"], inputs["R"], linear_before_reset=1)
    return {"HAll": result.HAll, "ZRH": result.ZRH}


DERIVE = {"LSTMGrad": _lstm_states, "GRUGrad": _gru_states}
