"""LSTM and GRU, by kernels that keep the gates of the forward pass.

The forward node is replaced by its training twin, which computes the same outputs and keeps the
states and gate values of every step for the backward pass.
"""

from onnxgrad.autodiff.rule import fused


@fused("LSTM", wrt="X W R B initial_h initial_c P")
def lstm(
    op, X, W, R, B, sequence_lens, initial_h, initial_c, P, Y, Y_h, Y_c, dY, dY_h, dY_c,
    *, attrs, need,
):  # fmt: skip
    """LSTMTraining takes the place of the node; LSTMGrad reads what it kept."""
    if attrs.get("layout", 0):
        return NotImplemented
    attrs = {k: v for k, v in attrs.items() if k != "layout"}
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
    if attrs.get("layout", 0):
        return NotImplemented
    attrs = {k: v for k, v in attrs.items() if k != "layout"}
    SL, H0 = sequence_lens, initial_h
    HAll, Ht, ZRH = op.GRUTraining(X, W, R, B, SL, H0, **attrs, outputs=3)
    for forward, value in ((Y, HAll), (Y_h, Ht)):
        op.instead(forward, value)
    return op.GRUGrad(X, W, R, B, SL, H0, HAll, ZRH, dY, dY_h, **attrs, outputs=need)
