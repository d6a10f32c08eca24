"""RNN, GRU and LSTM in standard operators: gates for all steps at once, then a Scan over time.

The forward node gives the state H of every step, so the pre-activations of all gates are one
matrix product over all steps. What is left for the Scan, which runs against the direction of the
forward pass, is the chain from step to step: da = gradients of the pre-activations, dH before.
Each step's da then gives dX, dW, dR and dB, again by one product over all steps.
"""

from dataclasses import dataclass
from typing import Any

from onnxgrad.autodiff.rule import NoGradient
from onnxgrad.autodiff.rules._scan import scan
from onnxgrad.autodiff.rules._slopes import sigmoid_slope, tanh_slope

# name -> (function, its slope told from its result)
ACTIVATIONS = {
    "Sigmoid": (lambda op, x: op.Sigmoid(x), sigmoid_slope),
    "Tanh": (lambda op, x: op.Tanh(x), tanh_slope),
    "Relu": (lambda op, x: op.Relu(x), lambda op, y: op.number(op.Greater(y, 0.0), y)),
}


@dataclass
class Direction:
    """One direction of a node: X [S, N, I], W [G·H, I], R [G·H, H], states [S, N, H]."""

    X: Any
    W: Any
    R: Any
    Wb: Any  # [G·H], or None
    Rb: Any
    P: Any
    H0: Any  # [N, H]
    C0: Any
    H: Any
    dH: Any  # of every step, or None
    dHt: Any  # of the last step
    dCt: Any
    live: Any  # [S, N, 1], the steps within each row's length, or None
    last: Any  # [S, N, 1], the last of them
    backwards: bool
    activations: list

    def previous(self, op, states, first):
        """The state before each step: the states moved by one, the initial one at the start."""
        start = op.Unsqueeze(first, [0])
        if not self.backwards:
            return op.Concat(start, op.Slice(states, [0], [-1], [0]), axis=0)
        moved = op.Concat(op.Slice(states, [1], [2**62], [0]), start, axis=0)
        return moved if self.last is None else op.Where(self.last, start, moved)

    def pre_activations(self, op, W, R, before, Wb, Rb):
        """X·Wᵀ + H[before]·Rᵀ + both biases, for all steps."""
        a = op.Add(_times(op, self.X, W), _times(op, before, R))
        return a if Wb is None else op.Add(a, op.Add(Wb, Rb))

    def scan(self, op, step, states, sequences):
        """Scan against the direction of the forward pass; past a row's length states pass."""
        if self.live is None:
            return scan(op, step, states, sequences, backwards=not self.backwards)
        n = len(states)

        def masked(inner, *values):
            live, given = values[-1], values[:n]
            new, results = step(inner, *values[:-1])
            new = [inner.Where(live, a, b) for a, b in zip(new, given, strict=True)]
            return new, [inner.Where(live, r, 0.0) for r in results]

        return scan(op, masked, states, [*sequences, self.live], backwards=not self.backwards)


def _times(op, x, W):
    return op.MatMul(x, op.Transpose(W, perm=[1, 0]))


def _parts(op, x, count, axis):
    return list(op.Split(x, axis=axis, outputs=count)) if x is not None else [None] * count


def _outer(op, da, x):
    """Σ daᵀ·x over steps and rows: [S, N, G], [S, N, K] -> [G, K]."""
    flat = [op.Reshape(v, op.Concat([-1], op.dim(v, 2), axis=0)) for v in (da, x)]
    return op.Gemm(*flat, transA=1)


def _total(op, da):
    return op.ReduceSum(da, [0, 1], keepdims=0)


def _both(op, name, x):
    """An activation and its slope at x."""
    if name not in ACTIVATIONS:
        raise NoGradient(
            f"has the activation {name!r}, of which only the fused kernel knows the slope",
            'use ops="fused"',
        )
    function, slope = ACTIVATIONS[name]
    y = function(op, x)
    return y, slope(op, y)


def rnn(op, d):
    """H = f(a), a = X·Wᵀ + H[before]·Rᵀ + b: da = dH·f', dH[before] = da·R."""
    before = d.previous(op, d.H, d.H0)
    if d.activations[0] not in ACTIVATIONS:
        _both(op, d.activations[0], d.H)
    slope = ACTIVATIONS[d.activations[0]][1](op, d.H)

    def step(inner, dh, dy, slope):
        da = inner.Mul(inner.Add(dh, dy), slope)
        return [inner.MatMul(da, d.R)], [da]

    (dH0,), (da,) = d.scan(op, step, [d.dHt], [d.dH, slope])
    bias = _total(op, da)
    return {
        "X": op.MatMul(da, d.W), "W": _outer(op, da, d.X), "R": _outer(op, da, before),
        "B": op.Concat(bias, bias, axis=0), "initial_h": dH0,
    }  # fmt: skip


def gru(op, d, linear_before_reset):
    """H = (1 - z)·h + z·H[before], h = g(X·Whᵀ + Wb + reset part), gates in the order z r h.

    The reset part is (r·H[before])·Rhᵀ + Rb, or r·u with u = H[before]·Rhᵀ + Rb.
    """
    f, g = d.activations
    before = d.previous(op, d.H, d.H0)
    Wz, Wr, Wh = _parts(op, d.W, 3, 0)
    Rz, Rr, Rh = _parts(op, d.R, 3, 0)
    bz, br, bh = _parts(op, d.Wb, 3, 0)
    cz, cr, ch = _parts(op, d.Rb, 3, 0)
    z, slope_z = _both(op, f, d.pre_activations(op, Wz, Rz, before, bz, cz))
    r, slope_r = _both(op, f, d.pre_activations(op, Wr, Rr, before, br, cr))
    if linear_before_reset:
        u = _times(op, before, Rh)
        u = u if ch is None else op.Add(u, ch)
        x = op.Add(_times(op, d.X, Wh), op.Mul(r, u))
        x = x if bh is None else op.Add(x, bh)
    else:
        u = before
        x = d.pre_activations(op, Wh, Rh, op.Mul(r, before), bh, ch)
    h, slope_h = _both(op, g, x)

    def step(inner, dh, dy, before, z, r, h, u, slope_z, slope_r, slope_h):
        dh = inner.Add(dh, dy)
        az = inner.Mul(inner.Mul(dh, inner.Sub(before, h)), slope_z)
        ah = inner.Mul(inner.Mul(dh, inner.Sub(1.0, z)), slope_h)
        if linear_before_reset:
            ar = inner.Mul(inner.Mul(ah, u), slope_r)
            through = inner.MatMul(inner.Mul(ah, r), Rh)
        else:
            reset = inner.MatMul(ah, Rh)
            ar = inner.Mul(inner.Mul(reset, before), slope_r)
            through = inner.Mul(reset, r)
        gates = inner.Add(inner.MatMul(az, Rz), inner.MatMul(ar, Rr))
        new = inner.Sum(inner.Mul(dh, z), through, gates)
        return [new], [az, ar, ah]

    sequences = [d.dH, before, z, r, h, u, slope_z, slope_r, slope_h]
    (dH0,), (az, ar, ah) = d.scan(op, step, [d.dHt], sequences)
    da = op.Concat(az, ar, ah, axis=2)
    au = op.Mul(ah, r) if linear_before_reset else ah
    read = before if linear_before_reset else op.Mul(r, before)
    pairs = [(az, before), (ar, before), (au, read)]
    totals = [_total(op, v) for v in (az, ar, ah, az, ar, au)]
    return {
        "X": op.MatMul(da, d.W), "W": _outer(op, da, d.X),
        "R": op.Concat(*[_outer(op, a, x) for a, x in pairs], axis=0),
        "B": op.Concat(*totals, axis=0), "initial_h": dH0,
    }  # fmt: skip


def lstm(op, d):
    """C = f·C[before] + i·g and H = o·h(C), gates in the order i o f c, peepholes i o f."""
    f_act, g_act, h_act = d.activations
    before = d.previous(op, d.H, d.H0)
    a = _parts(op, d.pre_activations(op, d.W, d.R, before, d.Wb, d.Rb), 4, 2)
    Pi, Po, Pf = _parts(op, d.P, 3, 0)
    C = _cell_states(op, d, a, Pi, Pf)
    old = d.previous(op, C, d.C0)

    def peep(x, weight, state):
        return x if weight is None else op.Add(x, op.Mul(weight, state))

    i, slope_i = _both(op, f_act, peep(a[0], Pi, old))
    o, slope_o = _both(op, f_act, peep(a[1], Po, C))
    f, slope_f = _both(op, f_act, peep(a[2], Pf, old))
    g, slope_g = _both(op, g_act, a[3])
    h, slope_h = _both(op, h_act, C)
    # factors of dH and dC, so that a step is a few products
    to_o, to_c = op.Mul(h, slope_o), op.Mul(o, slope_h)
    to_i, to_f, to_g = op.Mul(g, slope_i), op.Mul(old, slope_f), op.Mul(i, slope_g)

    def step(inner, dh, dc, dy, to_o, to_c, to_i, to_f, to_g, f):
        dh = inner.Add(dh, dy)
        ao = inner.Mul(dh, to_o)
        dc = inner.Add(dc, inner.Mul(dh, to_c))
        dc = dc if Po is None else inner.Add(dc, inner.Mul(ao, Po))
        ai, af, ag = (inner.Mul(dc, factor) for factor in (to_i, to_f, to_g))
        new = inner.Mul(dc, f)
        if Pi is not None:
            new = inner.Sum(new, inner.Mul(ai, Pi), inner.Mul(af, Pf))
        da = inner.Concat(ai, ao, af, ag, axis=1)
        return [inner.MatMul(da, d.R), new], [da]

    sequences = [d.dH, to_o, to_c, to_i, to_f, to_g, f]
    (dH0, dC0), (da,) = d.scan(op, step, [d.dHt, d.dCt], sequences)
    bias = _total(op, da)
    ai, ao, af, _ = _parts(op, da, 4, 2)
    peeps = [_total(op, op.Mul(x, s)) for x, s in ((ai, old), (ao, C), (af, old))]
    return {
        "X": op.MatMul(da, d.W), "W": _outer(op, da, d.X), "R": _outer(op, da, before),
        "B": op.Concat(bias, bias, axis=0), "initial_h": dH0, "initial_c": dC0,
        "P": op.Concat(*peeps, axis=0),
    }  # fmt: skip


def _cell_states(op, d, a, Pi, Pf):
    """C of every step, which the forward node does not give: a Scan of C = f·C[before] + i·g."""
    f_act, g_act, _ = d.activations
    sigma = ACTIVATIONS.get(f_act, (None,))[0]
    g, _ = _both(op, g_act, a[3])
    _both(op, f_act, a[0])

    def step(inner, c, ai, af, g, *live):
        ai = ai if Pi is None else inner.Add(ai, inner.Mul(Pi, c))
        af = af if Pf is None else inner.Add(af, inner.Mul(Pf, c))
        new = inner.Add(inner.Mul(sigma(inner, af), c), inner.Mul(sigma(inner, ai), g))
        new = inner.Where(live[0], new, c) if live else new
        return [new], [new]

    live = [] if d.live is None else [d.live]
    _, (C,) = scan(op, step, [d.C0], [a[0], a[2], g, *live], backwards=d.backwards)
    return C
