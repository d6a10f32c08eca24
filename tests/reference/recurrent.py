"""What LSTM and GRU share: activations, the order of the steps, and which rows have a step.

Everything is float64 and written from the ONNX equations, one time step at a time, so that it can
be read beside the operator's text. Nothing here is taken from the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# name: (number of alphas, number of betas, default alpha, default beta), as onnxruntime has them:
# where the ONNX text is silent (Affine, ScaledTanh) or has 1 (ThresholdedRelu), it takes 0.
PARAMETERS = {
    "affine": (1, 1, 0.0, 0.0),
    "relu": (0, 0, 0.0, 0.0),
    "leakyrelu": (1, 0, 0.01, 0.0),
    "thresholdedrelu": (1, 0, 0.0, 0.0),
    "tanh": (0, 0, 0.0, 0.0),
    "scaledtanh": (1, 1, 0.0, 0.0),
    "sigmoid": (0, 0, 0.0, 0.0),
    "hardsigmoid": (1, 1, 0.2, 0.5),
    "elu": (1, 0, 1.0, 0.0),
    "softsign": (0, 0, 0.0, 0.0),
    "softplus": (0, 0, 0.0, 0.0),
}


@dataclass(frozen=True)
class Activation:
    """One function of the ONNX list, with its two parameters."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def value(self, x):
        """y = f(x)."""
        a, b = self.alpha, self.beta
        match self.name:
            case "affine":
                return a * x + b
            case "relu":
                return np.maximum(x, 0)
            case "leakyrelu":
                return np.where(x >= 0, x, a * x)
            case "thresholdedrelu":
                return np.where(x > a, x, 0)
            case "tanh":
                return np.tanh(x)
            case "scaledtanh":
                return a * np.tanh(b * x)
            case "sigmoid":
                return 1 / (1 + np.exp(-x))
            case "hardsigmoid":
                return np.clip(a * x + b, 0, 1)
            case "elu":
                return np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0)))
            case "softsign":
                return x / (1 + np.abs(x))
            case "softplus":
                return np.logaddexp(0, x)
        raise ValueError(self.name)

    def slope(self, y):
        """f'(x) where y = f(x): only the output is stored."""
        a, b = self.alpha, self.beta
        match self.name:
            case "affine":
                return np.full_like(y, a)
            case "relu" | "thresholdedrelu":
                return np.where(y != 0, 1.0, 0.0)
            case "leakyrelu":
                return np.where(y > 0, 1.0, a)
            case "tanh":
                return 1 - y * y
            case "scaledtanh":
                return b * (a - y * y / a) if a else np.zeros_like(y)
            case "sigmoid":
                return y * (1 - y)
            case "hardsigmoid":
                return np.where((y > 0) & (y < 1), a, 0.0)
            case "elu":
                return np.where(y > 0, 1.0, y + a)
            case "softsign":
                return (1 - np.abs(y)) ** 2
            case "softplus":
                return -np.expm1(-y)
        raise ValueError(self.name)


def activations_of(names, alphas, betas, defaults, directions):
    """The functions of each direction.

    Alphas and betas are consumed in order, by the functions that take them.
    """
    names = list(names) if names else list(defaults) * directions
    alphas, betas = list(alphas or []), list(betas or [])
    functions = []
    for name in names:
        takes_alpha, takes_beta, alpha, beta = PARAMETERS[name.lower()]
        if takes_alpha and alphas:
            alpha = alphas.pop(0)
        if takes_beta and betas:
            beta = betas.pop(0)
        # attributes are float32 whatever the type of the tensors
        alpha, beta = float(np.float32(alpha)), float(np.float32(beta))
        functions.append(Activation(name.lower(), alpha, beta))
    each = len(defaults)
    return [functions[d * each : (d + 1) * each] for d in range(directions)]


def clipped(x, clip):
    """A pre-activation after `clip`."""
    return x if clip is None else np.clip(x, -np.float32(clip), np.float32(clip))


def slope_under_clip(activation, y, clip):
    """f'(clip(x)) d clip(x)/dx where y = f(clip(x)): zero where y is what f gives at one of the limits.

    Only y is known, and it may carry the rounding of float32.
    """
    slope = activation.slope(y)
    if clip is None:
        return slope
    limit = np.float64(np.float32(clip))
    ends = activation.value(np.array([-limit, limit]))
    margin = 8 * np.finfo(np.float32).eps * np.abs(ends)
    low, high = np.argmin(ends), np.argmax(ends)
    inside = (y > ends[low] + margin[low]) & (y < ends[high] - margin[high])
    return np.where(inside, slope, 0.0)


def float64(*arrays):
    """Each array as float64; None stays None."""
    return [None if a is None else np.asarray(a, np.float64) for a in arrays]


def steps(direction, index, length):
    """The times in the order in which direction `index` runs through them."""
    backwards = direction == "reverse" or index == 1
    return range(length - 1, -1, -1) if backwards else range(length)


def nonempty_rows(SL, steps, batch):
    """A column of flags: which rows have any step. The final state of the others is a constant 0."""
    lengths = np.full(batch, steps) if SL is None else np.asarray(SL)
    return (lengths > 0)[:, None]


def active_rows(SL, t, batch):
    """A column of flags: which rows have a step at time t."""
    lengths = np.full(batch, t + 1) if SL is None else np.asarray(SL)
    return (lengths > t)[:, None]


def backwards(direction, index, SL, steps_in_all, batch):
    """For each step of direction `index`, the last one first: its time, the rows that have it, and a function.

    That function gives the state from which the step started, of all states and the initial one: a row that had
    no step before this one is still in its initial state.
    """
    order = list(steps(direction, index, steps_in_all))
    for step in range(steps_in_all - 1, -1, -1):
        before = order[step - 1] if step else None
        started = active_rows(SL, before, batch) if step else np.zeros((batch, 1), bool)

        def state_before(states, initial, before=before, started=started):
            return np.where(started, 0 if before is None else states[before, index], initial)

        yield order[step], active_rows(SL, order[step], batch), state_before


def last_cotangent(grad, d, SL, steps_in_all, batch, hidden):
    """The cotangent of the final state of direction d. That of a row without steps goes nowhere."""
    given = np.zeros((batch, hidden)) if grad is None else grad[d]
    return np.where(nonempty_rows(SL, steps_in_all, batch), given, 0)
