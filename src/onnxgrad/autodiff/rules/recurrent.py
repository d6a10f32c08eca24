"""RNN, LSTM and GRU.

With onnxgrad's kernels the forward node is replaced by its training twin, which computes the same
outputs and keeps the states and gate values of every step for the backward pass. In standard
operators the gates are computed anew (`_cells.py`).
"""

import numpy as np
from onnx_ir import DataType

from onnxgrad.autodiff.rule import NoGradient, fused, rule
from onnxgrad.autodiff.rules import _cells


def _for_kernel(attrs):
    """The attributes of the forward node for a kernel.

    onnxruntime before 1.25 cannot hand a list of strings to a custom operator: `activations`
    travels a second time, as one string.
    """
    attrs = {k: v for k, v in attrs.items() if k != "layout"}
    if attrs.get("activations"):
        attrs["activations_text"] = ",".join(attrs["activations"])
    return attrs


@fused("LSTM", wrt="X W R B initial_h initial_c P")
def lstm(
    op, X, W, R, B, sequence_lens, initial_h, initial_c, P, Y, Y_h, Y_c, dY, dY_h, dY_c,
    *, attrs, need,
):  # fmt: skip
    """LSTMTraining takes the place of the node; LSTMGrad reads what it kept."""
    attrs = _for_kernel(attrs)
    SL, H0, C0 = sequence_lens, initial_h, initial_c
    HAll, Ht, Ct, CAll, IOFC = op.LSTMTraining(X, W, R, B, SL, H0, C0, P, **attrs, outputs=5)
    for forward, value in ((Y, HAll), (Y_h, Ht), (Y_c, Ct)):
        op.instead(forward, value)
    return op.LSTMGrad(
        X, W, R, SL, H0, C0, HAll, CAll, IOFC, dY, dY_h, dY_c, P, **attrs, outputs=need
    )


@fused("GRU", wrt="X W R B initial_h")
def gru(op, X, W, R, B, sequence_lens, initial_h, Y, Y_h, dY, dY_h, *, attrs, need):
    """As LSTM."""
    attrs = _for_kernel(attrs)
    SL, H0 = sequence_lens, initial_h
    HAll, Ht, ZRH = op.GRUTraining(X, W, R, B, SL, H0, **attrs, outputs=3)
    for forward, value in ((Y, HAll), (Y_h, Ht)):
        op.instead(forward, value)
    return op.GRUGrad(X, W, R, B, SL, H0, HAll, ZRH, dY, dY_h, **attrs, outputs=need)


@rule("RNN", wrt="X W R B initial_h")
def rnn_standard(op, X, W, R, B, sequence_lens, initial_h, Y, dY, dY_h, *, attrs, need):
    """One direction after the other."""
    node = _Node(op, X, W, R, B, sequence_lens, initial_h, None, None, Y, dY, dY_h, None, attrs)
    return node.gradients(need, lambda d: _cells.rnn(op, d), ["Tanh"])


@rule("GRU", wrt="X W R B initial_h")
def gru_standard(op, X, W, R, B, sequence_lens, initial_h, Y, dY, dY_h, *, attrs, need):
    """One direction after the other."""
    node = _Node(op, X, W, R, B, sequence_lens, initial_h, None, None, Y, dY, dY_h, None, attrs)
    linear = attrs.get("linear_before_reset", 0)
    return node.gradients(need, lambda d: _cells.gru(op, d, linear), ["Sigmoid", "Tanh"])


@rule("LSTM", wrt="X W R B initial_h initial_c P")
def lstm_standard(
    op, X, W, R, B, sequence_lens, initial_h, initial_c, P, Y, dY, dY_h, dY_c, *, attrs, need
):
    """One direction after the other."""
    node = _Node(op, X, W, R, B, sequence_lens, initial_h, initial_c, P, Y, dY, dY_h, dY_c, attrs)
    return node.gradients(need, lambda d: _cells.lstm(op, d), ["Sigmoid", "Tanh", "Tanh"])


class _Node:
    """A node cut into its directions, and their gradients put together again."""

    def __init__(self, op, X, W, R, B, SL, H0, C0, P, Y, dY, dY_h, dY_c, attrs):
        self.op, self.attrs = op, attrs
        if attrs.get("clip") or attrs.get("input_forget"):
            what = "clip" if attrs.get("clip") else "input_forget"
            raise NoGradient(f"has {what}, which only the fused kernel does", 'use ops="fused"')
        self.X, self.per_direction = X, (W, R, B, H0, C0, P, dY_h, dY_c)
        self.Y, self.dY, self.SL = Y, dY, SL
        size = op.dim(R, 2)
        state = op.full(op.Concat(op.dim(X, 1), size, axis=0), 0, op.dtype(X))
        self.zero = state

    def gradients(self, need, cell, defaults):
        """Run `cell` for each direction; a dict by the names of `need`."""
        op = self.op
        kind = self.attrs.get("direction", "forward")
        count = 2 if kind == "bidirectional" else 1
        names = list(self.attrs.get("activations") or defaults * count)
        parts = []
        for i in range(count):
            backwards = kind == "reverse" or i == 1
            own = names[i * len(defaults) : (i + 1) * len(defaults)]
            parts.append(cell(self._direction(i, backwards, own)))
        result = {}
        for name in need:
            each = [p[name] for p in parts]
            if name == "X":
                result[name] = op.Sum(*each)
            else:
                result[name] = op.Concat(*[op.Unsqueeze(v, [0]) for v in each], axis=0)
        return result

    def _direction(self, i, backwards, activations):
        op = self.op

        def pick(x, axis=0):
            return None if x is None else op.Gather(x, op.constant(np.array(i)), axis=axis)

        W, R, B, H0, C0, P, dY_h, dY_c = (pick(v) for v in self.per_direction)
        Wb, Rb = (None, None) if B is None else op.Split(B, axis=0, outputs=2)
        H, dH = pick(self.Y, 1), pick(self.dY, 1)
        live = last = None
        if self.SL is not None:
            steps = op.Reshape(op.range(op.dim(self.X, 0)), [-1, 1, 1])
            lengths = op.Reshape(op.Cast(self.SL, to=DataType.INT64), [1, -1, 1])
            live = op.Less(steps, lengths)
            last = op.Equal(steps, op.Sub(lengths, [1]))
        if dH is None:
            dH = op.full_like(H, 0)
        elif live is not None:
            dH = op.Where(live, dH, 0.0)
        return _cells.Direction(
            self.X, W, R, Wb, Rb, P,
            *(self.zero if v is None else v for v in (H0, C0)), H, dH,
            *(self.zero if v is None else v for v in (dY_h, dY_c)),
            live, last, backwards, activations,
        )  # fmt: skip
