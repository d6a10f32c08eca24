"""Activations. Each has a standard form and, where onnxgrad has a kernel for it, a fused one."""

import math

from onnxgrad.autodiff.rule import fused, rule
from onnxgrad.autodiff.rules._slopes import (
    exact_sigmoid_slope,
    is_answer,
    sigmoid_slope,
    tanh_slope,
)


def _negative_part(op, X, dY, slope):
    """dX = dY where X > 0, else dY · slope."""
    return op.Mul(dY, op.Where(op.Greater(X, 0.0), 1.0, slope))


rule("Relu", X=lambda op, X, dY: op.Where(op.Greater(X, 0.0), dY, 0.0))
fused("Relu", X=lambda op, X, dY: op.ReluGrad(dY, X))


@rule("Sigmoid", wrt="X")
def sigmoid(op, X, Y, dY, *, node):
    """By Y, which is at hand; probabilities that a model answers may be tiny, and go by X."""
    slope = exact_sigmoid_slope(op, X) if is_answer(node) else sigmoid_slope(op, Y)
    return op.Mul(dY, slope)


@fused("Sigmoid", wrt="X")
def sigmoid_by_kernel(op, X, Y, dY, *, node):
    """The kernel reads Y."""
    if is_answer(node):
        return op.Mul(dY, exact_sigmoid_slope(op, X))
    return op.SigmoidGrad(dY, Y)


rule("Tanh", input=lambda op, output, doutput:
     op.Mul(doutput, tanh_slope(op, output)))  # fmt: skip
fused("Tanh", input=lambda op, output, doutput: op.TanhGrad(doutput, output))

rule("LeakyRelu", X=lambda op, X, dY, *, alpha: op.Where(op.Greater(X, 0.0), dY, op.Mul(dY, alpha)))


@fused("LeakyRelu", wrt="X")
def leaky_relu(op, Y, dY, *, alpha):
    """The kernel looks at the sign of Y, which is that of X for a positive slope only."""
    return op.LeakyReluGrad(dY, Y, alpha=alpha) if alpha > 0 else NotImplemented


rule("PRelu", broadcast=True,
     X=lambda op, X, slope, dY: op.Where(op.Less(X, 0.0), op.Mul(dY, slope), dY),
     slope=lambda op, X, dY:    op.Where(op.Less(X, 0.0), op.Mul(dY, X), 0.0))  # fmt: skip

# Slopes below zero by e^X, not by Y + alpha: that cancels where X is far below zero.
rule("Elu", X=lambda op, X, dY, *, alpha: _negative_part(op, X, dY, op.Mul(op.Exp(X), alpha)))
rule("Selu", X=lambda op, X, dY, *, alpha, gamma: op.Mul(
    dY, op.Where(op.Greater(X, 0.0), gamma, op.Mul(op.Exp(X), alpha * gamma))))  # fmt: skip
rule("Celu", X=lambda op, X, dY, *, alpha: _negative_part(
    op, X, dY, op.Exp(op.Div(X, alpha))))  # fmt: skip
rule("ThresholdedRelu", X=lambda op, X, dY, *, alpha: op.Where(op.Greater(X, alpha), dY, 0.0))
rule("Softplus", X=lambda op, X, dY: op.Mul(dY, op.Sigmoid(X)))


def _softsign(op, input, doutput):
    width = op.Add(op.Abs(input), 1.0)
    return op.Div(doutput, op.Mul(width, width))


rule("Softsign", input=_softsign)


@rule("HardSigmoid", wrt="X")
def hard_sigmoid(op, Y, dY, *, alpha):
    """The slope is alpha strictly between the bounds 0 and 1."""
    inside = op.And(op.Greater(Y, 0.0), op.Less(Y, 1.0))
    return op.Where(inside, op.Mul(dY, alpha), 0.0)


@rule("HardSwish", wrt="X")
def hard_swish(op, X, dY):
    """Y = X · min(max(X/6 + 1/2, 0), 1): slope 0 below -3, 1 above 3, X/3 + 1/2 between."""
    between = op.Where(op.Less(X, 3.0), op.Add(op.Div(X, 3.0), 0.5), 1.0)
    return op.Mul(dY, op.Where(op.Greater(X, -3.0), between, 0.0))


fused("HardSwish", X=lambda op, X, dY: op.HardSwishGrad(dY, X))


@rule("Mish", wrt="X")
def mish(op, X, dY):
    """Y = X · t, t = tanh(softplus(X)): dX = dY · (t + X · (1 - t²) · sigmoid(X))."""
    t = op.Tanh(op.Softplus(X))
    slope = op.Add(t, op.Mul(X, op.Mul(tanh_slope(op, t), op.Sigmoid(X))))
    return op.Mul(dY, slope)


@rule("Swish", wrt="X")
def swish(op, X, dY, *, alpha):
    """With s = sigmoid(alpha·X): dX = dY · s · (1 + alpha·X · (1 - s))."""
    return swish_grad(op, X, dY, alpha)


def swish_grad(op, X, dY, alpha):
    """Shared with QuickGelu, its name in com.microsoft."""
    z = op.Mul(X, alpha)
    s = op.Sigmoid(z)
    return op.Mul(dY, op.Mul(s, op.Add(op.Mul(z, op.Sub(1.0, s)), 1.0)))


fused("Swish", X=lambda op, X, dY, *, alpha: op.QuickGeluGrad(dY, X, alpha=alpha))


@rule("Shrink", wrt="input")
def shrink(op, input, doutput, *, lambd):
    """A shift outside [-lambd, lambd], zero inside."""
    return op.Where(op.Greater(op.Abs(input), lambd), doutput, 0.0)


def gelu_grad(op, X, dY):
    """dX = dY · (Φ(X) + X·φ(X)), Φ and φ the normal distribution and its density."""
    cdf = op.Mul(op.Add(op.Erf(op.Mul(X, math.sqrt(0.5))), 1.0), 0.5)
    pdf = op.Mul(op.Exp(op.Mul(op.Mul(X, X), -0.5)), 1 / math.sqrt(2 * math.pi))
    return op.Mul(dY, op.Add(cdf, op.Mul(X, pdf)))


def fast_gelu_grad(op, X, dY):
    """With u = a·X + b·X³, t = tanh(u): dX = dY/2 · (1 + t + X · (1 - t²) · (a + 3b·X²))."""
    a = math.sqrt(2 / math.pi)
    b = a * 0.044715
    xx = op.Mul(X, X)
    t = op.Tanh(op.Mul(X, op.Add(op.Mul(xx, b), a)))
    slope = op.Mul(op.Mul(X, tanh_slope(op, t)), op.Add(op.Mul(xx, 3 * b), a))
    return op.Mul(op.Mul(dY, 0.5), op.Add(op.Add(t, 1.0), slope))


@rule("Gelu", wrt="X")
def gelu(op, X, dY, *, approximate):
    """Exact, or by tanh."""
    return fast_gelu_grad(op, X, dY) if approximate == "tanh" else gelu_grad(op, X, dY)


@fused("Gelu", wrt="X")
def gelu_fused(op, X, dY, *, approximate):
    """Exact, or by tanh."""
    return op.FastGeluGrad(dY, X) if approximate == "tanh" else op.GeluGrad(dY, X)


@rule("Softmax", wrt="input")
def softmax(op, output, doutput, *, axis):
    """dX = Y · (dY - Σ(Y·dY))."""
    dot = op.ReduceSum(op.Mul(output, doutput), [axis], keepdims=1)
    return op.Mul(output, op.Sub(doutput, dot))


@rule("LogSoftmax", wrt="input")
def log_softmax(op, output, doutput, *, axis):
    """dX = dY - Σ(dY)·exp(Y)."""
    return op.Sub(doutput, op.Mul(op.ReduceSum(doutput, [axis], keepdims=1), op.Exp(output)))


fused("Softmax", input=lambda op, output, doutput, *, axis:
      op.SoftmaxGrad_13(doutput, output, axis=axis))  # fmt: skip
fused("LogSoftmax", input=lambda op, output, doutput, *, axis:
      op.LogSoftmaxGrad_13(doutput, output, axis=axis))  # fmt: skip
